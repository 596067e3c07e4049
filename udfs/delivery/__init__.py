"""The plan of a worker, and the task that converts records to frames.

`stackcast.udfs.columns`, adapters that plan, and the replay may call it.
"""
