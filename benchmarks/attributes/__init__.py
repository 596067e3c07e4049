"""``bench attributes``: headers, entries and frames a second of attribute/value events."""
