"""Replicated state's sockets: links to the network, connections, middleware, programs' client.

Called by the console command and by programs of users; what they do is `stackcast.udfs.states`.
"""
