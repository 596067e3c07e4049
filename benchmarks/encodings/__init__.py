"""All encodings beside each other and beside what others do."""
