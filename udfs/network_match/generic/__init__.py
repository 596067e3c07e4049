"""Rules on attributes as rows of the one generic table, in three ways (KUNDEL III-C)."""
