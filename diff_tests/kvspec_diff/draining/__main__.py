"""`python -m kvspec_diff.draining`: the reference on every schedule of the small scope; exit 1 if a law is broken."""

import argparse
import sys


def main(arguments: list[str]) -> int:
    """The exit status: 0, 1 if a law is broken, 2 for arguments, of which there are none, 130 if interrupted."""
    try:
        description = "Compare the reference decoder, which late requests join, with plain decoding on every schedule."
        argparse.ArgumentParser("python -m kvspec_diff.draining", description=description).parse_args(arguments)
        return _compared()
    except KeyboardInterrupt:
        print("kvspec_diff.draining: interrupted", file=sys.stderr)
        return 130


def _compared() -> int:
    """What is imported takes a while too, and may be interrupted."""
    from kvspec_diff.draining.judge import compare
    from kvspec_diff.draining.schedule import SMALL, every
    from kvspec_diff.draining.subject import Reference

    found = compare(Reference(), every(SMALL))
    print(f"{SMALL}: {found}")
    if found.finding:
        print(found.finding)
    return int(found.finding is not None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
