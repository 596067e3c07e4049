"""The stream in which each record leaves at once: its driver, the line to its workers, its ledger.

Called by the main jobs.
"""
