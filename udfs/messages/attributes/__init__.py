"""Attribute/value events (KUNDEL III-B): the registry of attributes, both encodings, JSON."""
