"""Steiner and broadcast trees, the choice of trees to store, and the encoder of header stacks.

Delivery, retuning and replay may call it; it calls network alone.
"""
