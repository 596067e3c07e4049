"""Command lines of the jobs, one module per job.

A job parses its command line before it imports the packages that do its work, which takes a second.
Help and errors therefore appear at once. Modules of this package import no slow library, and only
the jobs import them.
"""
