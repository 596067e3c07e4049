"""``bench attributes``."""
