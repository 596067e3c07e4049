"""``stackcast filters``: rules checked, compiled, tried on events, and explained.

A command of `stackcast.cli.main`.
"""
