"""``stackcast receive``: the host's side of the stream, with recovery of lost notifications.

A command of `stackcast.cli.main`.
"""
