"""``stackcast filters``."""
