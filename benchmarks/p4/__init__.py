"""``bench p4``: passes a frame, entries a switch and frames a second of the P4 programs."""
