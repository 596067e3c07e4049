"""Rules that would multiply in a diagram, matched predicate by predicate."""
