"""Tables become entries of switches, written over P4Runtime.

Called by the refresher; retuning reads programs and sizes here.
"""
