"""Computes again what was sent: for hosts that ask for it, and for people who ask why.

Called by the job of re-requests and by ``stackcast explain``.
"""
