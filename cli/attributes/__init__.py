"""``stackcast attributes``: attribute/value events in files, to both encodings, onto their way.

Called by `stackcast.cli.main`; `stackcast.cli.frames` shows events with its help.
"""
