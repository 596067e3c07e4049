"""``stackcast attributes``: attribute/value events in files, encoded, decoded and published.

The commands are called by `stackcast.cli.main`. Other commands read files of attributes with it.
"""
