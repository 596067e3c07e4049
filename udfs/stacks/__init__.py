"""Header stacks and bytes: frames from labels and back, and the model of how switches forward them.

Delivery, retuning, switches, lab and console may call it; it calls messages and network.
"""
