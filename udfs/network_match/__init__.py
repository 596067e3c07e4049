"""Filters among switches: the compiled rules as entries of programs that match by themselves.

Called by the adapters that write switches, by ``stackcast filters`` and by the generated program.
"""
