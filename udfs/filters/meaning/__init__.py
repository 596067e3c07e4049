"""What a rule means: brute force, normal form, state, and the interpreter that is the reference."""
