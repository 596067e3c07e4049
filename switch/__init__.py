"""A software switch that runs what p4c compiled and knows nothing of Stackcast.

Called by `fabric` and by benchmarks; of udfs it knows errors and the form of switch entries.
"""
