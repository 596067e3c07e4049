"""A worker's plan, and the task that turns records into frames by it.

Called by Spark's side (`stackcast.udfs.columns`), by adapters that plan, and by the replay.
"""
