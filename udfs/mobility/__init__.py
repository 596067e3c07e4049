"""The use case of replicated state (STARE I-A): where devices were seen, and how they moved.

Called by the trackers of `stackcast.jobs.embedded`; it may call numpy alone.
"""
