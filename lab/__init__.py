"""Stand-ins for the outside world: broker, switches, hosts, traffic, and the proof of deliveries.

Called by the embedded default, the console command, tests and benchmarks; it calls udfs alone.
"""
