"""The stream in which each record leaves at once: its driver, its channel to workers, its ledger.

Called by the main jobs.
"""
