"""``stackcast receive``: the host's side of the stream, with recovery of lost notifications.

Called by `stackcast.cli.main`.
"""
