"""Stand-ins for the outside world: broker, network, hosts, traffic, and the proof of deliveries.

Called by the embedded default, the console command, tests and benchmarks. It calls only switch
and udfs.
"""
