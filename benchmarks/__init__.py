"""Benchmarks: each prints JSON lines; run by ``./spark-submit.sh bench NAME``."""
