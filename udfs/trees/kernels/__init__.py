"""The encoder's compiled loops: searches, Algorithm 5.1, and the ways to shorten its stacks.

Only modules of ``udfs.trees`` call them.
"""
