"""Proof that every host got exactly what it was owed, by brute force apart from the compiled way.

Called by jobs that prove, by `traffic` and `report`; it calls no other room of the lab.
"""
