"""``bench pipeline``."""
