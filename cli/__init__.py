"""The console command ``stackcast``: filters, frames, sessions, events, receiving, labs.

Each subcommand is a module or a folder. It may call jobs, their adapters, the lab and udfs; no part
of the product calls it.
"""
