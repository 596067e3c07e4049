"""Hash-consed decision diagrams in arrays, and the tree of unions above slots."""
