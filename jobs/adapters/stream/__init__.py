"""One micro-batch after another: input, delivery, report, checks, watch, metrics, Kafka.

Called by the main jobs, and by `replay` for what it shares with them.
"""
