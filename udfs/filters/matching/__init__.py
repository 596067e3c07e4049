"""The compiled rows over columns: events in, leaves out, with or without state."""
