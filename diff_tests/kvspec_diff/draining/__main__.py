"""`python -m kvspec_diff.draining`: the reference on every schedule of the small scope; exit 1 if a law is broken."""

import sys

from kvspec_diff.draining.judge import compare
from kvspec_diff.draining.schedule import SMALL, every
from kvspec_diff.draining.subject import Reference

if __name__ == "__main__":
    found = compare(Reference(), every(SMALL))
    print(f"{SMALL}: {found}")
    if found.finding:
        print(found.finding)
    sys.exit(found.finding is not None)
