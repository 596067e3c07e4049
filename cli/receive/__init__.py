"""``stackcast receive``."""
