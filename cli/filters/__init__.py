"""``stackcast filters``: rules checked, compiled, tried on events, and explained.

Called by `stackcast.cli.main`.
"""
