"""A software switch that runs compiled P4 programs and is independent of Stackcast's programs.

Called by the lab, the console command, tests and benchmarks. From udfs it imports only errors and
the form of switch entries, from schemas only P4Runtime's messages.
"""
