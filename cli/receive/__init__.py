"""``stackcast receive``: the host's side of the stream, with recovery of lost notifications.

The command is called by `stackcast.cli.main`.
"""
