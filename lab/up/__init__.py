"""The lab as processes: broker and network brought up, held and taken down.

Called by the embedded default, the console command and benchmarks; it calls `fabric` and `traffic`.
"""
