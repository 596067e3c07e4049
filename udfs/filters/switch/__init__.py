"""The compiled rows in a switch: the P4 program, its entries, and what they cost."""
