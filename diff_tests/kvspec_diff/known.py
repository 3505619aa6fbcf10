"""Known findings: an engine release's confirmed faults, committed as traces that must still fail.

`findings/<engine>/<release>/*.jsonl` in this package: the header's `law` says what the trace breaks, `note` explains it
and links to the upstream issue, `subject` has the engine's options.
"""

from importlib.resources import as_file, files
from pathlib import Path
from typing import NamedTuple

from kvspec_diff import trace
from kvspec_diff.campaign import Key, key_of
from kvspec_diff.sources import Release, described
from kvspec_diff.targets import Fault


class Known(NamedTuple):
    """A known finding: its file's name and what is in it."""

    name: str
    trace: trace.Trace


class Replayed(NamedTuple):
    """A known finding that was run again: `fault` is what it breaks now, `key` what other failures like it have."""

    known: Known
    fault: Fault | None
    key: Key | None

    @property
    def stands(self) -> bool:
        """Whether it still breaks the law that it is known for."""
        return self.fault is not None and self.fault.law == self.known.trace.header.law


def load(engine: str, version: str, folder: Path | None = None) -> list[Known]:
    """The known findings of a release, from the package or another `folder`; `TraceError` for one that is malformed."""
    with as_file(files("kvspec_diff") / "findings") as own:
        release = (folder or own) / engine / version
        return [Known(path.name, trace.read(path)) for path in sorted(release.glob("*.jsonl"))]


def replay(release: Release, known: Known) -> Replayed:
    """Run a known finding on the release, with its own options."""
    parts = described(known.trace.header.subject)
    target = release.target(parts.options if parts else {})
    (examined,) = target.examine((known.trace.program,))
    return Replayed(known, examined.fault, key_of(target, examined.fault) if examined.fault else None)
