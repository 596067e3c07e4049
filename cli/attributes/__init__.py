"""``stackcast attributes``."""
