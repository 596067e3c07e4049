"""``bench trees``."""
