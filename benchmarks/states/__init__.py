"""Replicated state measured: the tables of STARE IV, and what it leaves out."""
