"""Notifications computed again from offsets and a plan, and answers to hosts that ask for them.

Called by the adapters that replay.
"""
