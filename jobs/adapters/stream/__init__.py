"""One micro-batch after another: input, delivery, report, checks, watch, metrics, Kafka.

Called by the main jobs, and by `realtime` and `replay` for what they share with it.
"""
