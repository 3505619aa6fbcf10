"""Subjects: what programs are run on. Each is thin; what it offers is in its `capabilities`."""
