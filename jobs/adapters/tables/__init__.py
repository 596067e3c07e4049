"""The Delta tables: their log, writing and reading at versions, and the network that they hold.

Called by all rooms that decide from tables or write them; it calls `app` alone.
"""
