"""A P4Runtime server: checks what controllers write, and hands it to a switch's data plane.

``server`` speaks gRPC and knows many devices; ``device`` is one switch, ``arbitration`` says who
may write it. ``p4info`` and ``program`` read the two halves of a pipeline config, ``fit`` says
whether they belong together. ``table_entries`` and ``replication`` turn messages into entries by
name, ``holdings`` is what a switch holds, ``batch`` a Write, ``reading`` a Read, ``refusal`` the
answer to one that is refused. ``endpoint`` and ``files`` check what an operator gives.
"""
