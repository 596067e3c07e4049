"""The embedded default: a lab on this machine, a job that delivers into it, and the proof.

The main jobs import it only when no Kafka of a user is named, except `options`.
"""
