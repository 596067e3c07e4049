"""The graph that all else refers to: switches, hosts, links, stored trees, and the form of labels.

Every room may call it; it calls none.
"""
