"""Tables become entries of switches, written over P4Runtime: lead, derive, apply, publish.

Called by the refresher's job and the embedded default; retuning reads programs and sizes here.
"""
