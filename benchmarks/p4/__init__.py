"""``bench p4``."""
