"""What ./spark-submit.sh make runs: writers of generated files; structure and audit print.

Tests hold the files against the same functions, and write none.
"""
