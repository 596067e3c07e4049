"""Stackcast delivers each event to exactly the hosts that subscribed to it.

In a checkout, the packages are links to folders at its root.
"""
