"""The stream: it delivers the records of a topic in micro-batches or in real time.

`assembly` connects its parts: the owners of plans, summaries and records, the slices of real time,
recovery, monitoring and progress reports. These modules import neither Spark nor Kafka. Modules
that do, such as `spark_stream` and `spark_listeners`, connect them to a Spark session.

The main jobs call `spark_stream`. The package `replay` uses `report` and `spark_input`.
"""
