"""Why an event goes where it goes: in text, as a drawing, and in SQL."""
