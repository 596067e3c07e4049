"""Everything that computes: pure functions on buffers, columns and graphs, in rooms; no I/O.

Jobs, lab and console call it; rooms stand on each other one way, as import-linter holds.
"""
