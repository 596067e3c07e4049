"""A software switch that runs what p4c compiled and knows nothing of Stackcast."""
