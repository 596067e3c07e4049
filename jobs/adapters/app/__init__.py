"""Things that any job starts and ends with: settings, session, logs, errors, metrics server.

Every room of the adapters may call it; it calls none of them.
"""
