"""The network of the lab: switches in one process, links, hosts with real sockets."""
