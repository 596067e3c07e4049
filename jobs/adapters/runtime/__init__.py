"""Time, threads and tasks of the driver, as protocols with one real implementation each.

Any package of the adapters and any job may import it. It imports no other package of the adapters.
Tests run the same code under a virtual clock (tests/support/virtual_time.py).
"""
