"""Messages and stubs of P4Runtime 1.4.1 by the P4.org API Working Group (Apache License 2.0).

``./spark-submit.sh make p4runtime`` generates the modules from the definitions in ``proto/``.
"""
