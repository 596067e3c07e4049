"""The P4 program that is generated from a message format, one part of it a module.

Called by what makes the files of `p4/`.
"""
