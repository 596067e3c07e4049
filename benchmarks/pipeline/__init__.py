"""``bench pipeline``: the whole path from Kafka to the wire."""
