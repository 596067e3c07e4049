"""``stackcast filters``: rules checked, compiled, matched with events, and explained.

The commands are called by `stackcast.cli.main`.
"""
