"""Terms to rows: levels, diagram, tables (CAMUS Algorithm 1), numbers that stay under edits."""
