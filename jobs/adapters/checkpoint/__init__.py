"""Files of the checkpoint that survive a crash: pins, state, reports, journal, progress, identity.

Called by streams and by the replay; it calls `app`, `tables` and `planning`.
"""
