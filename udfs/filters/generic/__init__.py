"""One generic table for events of any attributes (KUNDEL III-C): rules to rows to entries."""
