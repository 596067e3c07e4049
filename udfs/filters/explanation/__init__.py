"""Explanations of an event's way through the tables: in text, as a drawing, and in SQL."""
