"""What a run of the lab leaves for its reader: figures, and a page to look at."""
