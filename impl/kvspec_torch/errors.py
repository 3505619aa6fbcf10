"""What a call raises. In both cases nothing was changed."""


class Misuse(ValueError):
    """The caller asked for what its contract forbids."""


class Refused(Exception):
    """There is not enough to serve the call (O5)."""
