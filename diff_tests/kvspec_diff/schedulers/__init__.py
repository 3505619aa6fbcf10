"""Engines' schedulers: programs of requests on the real one, what it does followed by the specification (A, R, P)."""
