"""What any job needs to start and to end: settings, session, logs, errors, metrics server.

Every room of the adapters may call it; it calls none of them.
"""
