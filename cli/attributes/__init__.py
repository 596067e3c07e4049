"""``stackcast attributes``: attribute/value events in files, to both encodings, onto their way.

Called by `cli.main`; `cli.frames` shows events with its help.
"""
