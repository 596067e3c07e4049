"""The console: what a deployment's tables and its stream's health say, as pages of a web server.

Called by `jobs/console.py` alone. Nothing in a stream waits for it: it reads tables, asks the
stream over HTTP, and writes rows of `subscriptions`, as anybody may.
"""
