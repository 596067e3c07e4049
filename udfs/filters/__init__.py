"""Subscriptions: text, syntax tree, normal form, decision diagram, tables, matcher.

``language`` reads rules, ``meaning`` defines them, ``diagrams`` and ``compiler`` turn them into
rows, ``matching`` runs the rows over columns, and ``explanation`` words results for people.
``subscriptions`` and ``live_rules`` are the way in for tables of subscriptions; all of them share
``nodes``, ``intervals`` and ``prefixes``.
"""
