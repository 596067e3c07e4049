"""Text to syntax trees: one rule, a file of rules, or many rules at once."""
