"""Messages: bytes to columns and back, by specification; summaries, and recovery of lost ones.

Every room above may call it; it calls none but network.
"""
