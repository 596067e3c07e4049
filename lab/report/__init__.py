"""The report of a run: figures as JSON, a table, and a page with samples on a map.

Called by the embedded default; it may call all rooms of the lab.
"""
