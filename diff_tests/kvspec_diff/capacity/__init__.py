"""Capacity (C1-C9): what an engine reserves, compared with the one formula of `kvspec_reference.reservation`."""
