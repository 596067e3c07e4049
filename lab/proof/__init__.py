"""Whether every host got exactly what it was owed, by brute force apart from the compiled way."""
