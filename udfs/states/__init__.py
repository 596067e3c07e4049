"""Replicated state (STARE): messages, switches and those who hold replicas, as state machines.

Nothing here opens a socket; `jobs/adapters` carries what they say.
"""
