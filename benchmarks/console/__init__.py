"""``bench console``: milliseconds from frame to frame of the map of the console."""
