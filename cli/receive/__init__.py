"""``stackcast receive``: a host's side of the stream, with recovery of what got lost.

Called by `cli.main`.
"""
