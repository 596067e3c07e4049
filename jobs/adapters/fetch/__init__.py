"""Records straight from Kafka's brokers into Spark's tasks, no byte of them through the JVM.

Called by streams, whose tasks run it; it calls `app` alone.
"""
