"""Plans: what tasks need to deliver, compiled from versions of the tables.

Programs that run or replay a stream call this package. It calls `app` and `tables`.
"""
