"""Whole days of finished tasks and runs in files: docs/archive.md.

folder    the files of one archive, and the manifest that says what they are
writing   one file, which is there only when it is whole
export    from a store to a folder
verify    whether the files are what the manifest says
"""
