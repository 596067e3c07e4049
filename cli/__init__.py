"""The console command ``stackcast``: filters, frames, sessions, events, receiving, labs.

Each command is a module or a package that defines arguments, options and help with light imports
only, and imports the modules that do the work when the command runs. Commands may call jobs, their
adapters, the lab and udfs; no part of the product calls a command.
"""
