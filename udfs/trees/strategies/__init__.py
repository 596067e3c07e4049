"""Strategies: which trees to store, one family a module, all by name in ``registry``.

Retuning and benchmarks call them by the registry.
"""
