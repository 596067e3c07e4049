"""Choosing trees by what was published, and changing to them without loss."""
