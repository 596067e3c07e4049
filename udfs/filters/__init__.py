"""Subscriptions: text, syntax tree, normal form, decision diagram, tables, matcher.

``language`` reads a rule, ``subscriptions`` checks many, ``compile`` turns them
into rows, ``matcher`` runs the rows over columns, and ``evaluate`` is the
reference that all of it is measured against.
"""
