"""Computes notifications again from offsets and a plan, and answers hosts that ask for them.

Called by the adapters that replay.
"""
