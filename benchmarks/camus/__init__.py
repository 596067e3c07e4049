"""The experiments of CAMUS with our software: where filters stand, and what compiling takes."""
