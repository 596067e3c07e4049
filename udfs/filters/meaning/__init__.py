"""The meaning of a rule: brute force, normal form, state, and the interpreter, the reference."""
