"""Kafka: records that tasks fetch from the brokers directly, and the topics of a deployment.

The packages above it may call it. It calls `app` and `runtime` only.
"""
