"""Traffic of the lab: trading sessions, sensors, feeds, and the subscriptions to them.

Called by `up`, the embedded default, the console command and benchmarks; it calls `proof`.
"""
