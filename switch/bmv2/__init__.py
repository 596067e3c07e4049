"""BMv2 programs (what p4c-bm2-ss makes for v1model) run in Python."""
