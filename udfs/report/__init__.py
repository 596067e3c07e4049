"""Pages that stand alone in a browser: one template, one style, one map of a network.

Pure text, and the package's own files. Reports of any room may call it; it calls none.
"""
