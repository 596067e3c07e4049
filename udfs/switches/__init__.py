"""Entries of a switch: derived from network and trees, with ports, routes, limits, order and
rollout.

Adapters, lab and the rooms on filters among switches may call it; it calls stacks and network.
"""
