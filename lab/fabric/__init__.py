"""Networks of the lab: switches in one process with links and hosts, or one switch alone.

Called by `up` and by the console command; it calls `switch`.
"""
