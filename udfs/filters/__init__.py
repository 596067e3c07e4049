"""Subscriptions: text, syntax tree, normal form, decision diagram, tables, matcher.

``language`` reads rules, ``meaning`` says what they mean, ``diagrams`` and ``compiler`` turn them
into rows, ``matching`` runs the rows over columns, and ``explanation`` tells people why.
``subscriptions`` and ``live_rules`` are the way in for tables of subscriptions; ``nodes``,
``intervals`` and ``prefixes`` are words that all of them share.
"""
