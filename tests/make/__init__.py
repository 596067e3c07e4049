"""What ./spark-submit.sh make runs: p4 and docs write files that are made, structure prints.

Tests hold the files against the same functions, and write none.
"""
