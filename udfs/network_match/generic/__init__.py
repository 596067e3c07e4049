"""Rules on attributes as passes: rows of one generic table, and bit vectors (KUNDEL III-C)."""
