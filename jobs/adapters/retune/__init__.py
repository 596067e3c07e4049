"""The stored trees are chosen anew, by the record of what was published.

Called by the job that retunes.
"""
