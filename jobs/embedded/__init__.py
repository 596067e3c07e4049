"""The embedded default: a lab on this machine, a job that delivers into it, and the proof.

Imported by the main jobs only when no Kafka of a user is named.
"""
