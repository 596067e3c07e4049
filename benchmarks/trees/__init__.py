"""``bench trees``: virtual trees, the choice of them, and other encodings."""
