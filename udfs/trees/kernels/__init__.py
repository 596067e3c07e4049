"""The encoder's compiled loops: searches, Algorithm 5.1, and the ways to shorten its stacks.

Only modules of ``stackcast.udfs.trees`` call them.
"""
