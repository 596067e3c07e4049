"""Chooses the trees to store next: the record of publications, replayed under strategies.

Called by the adapters that retune.
"""
