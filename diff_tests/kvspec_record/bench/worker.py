"""The benchmark's worker: it measures what its arguments name and writes a JSON line for each.

First `{"engine": ..., "version": ..., "python": ..., "torch": ..., "numpy": ..., "threads": ...}`, then for each name
`{"name": ..., "ours": [one number a round], "peer": [...]}`. What the engine prints goes to standard error.
"""

import argparse
import importlib
import platform
import sys
from collections.abc import Callable
from importlib.metadata import version
from types import ModuleType
from typing import Any

from kvspec_record.worker import guard_streams, write


def main() -> int:
    """Measure; the exit status is 0."""
    parser = argparse.ArgumentParser(prog="kvspec_record.bench")
    parser.add_argument("--impl", required=True, help="the folder with kvspec_torch")
    parser.add_argument("--engine", required=True, choices=("sglang", "vllm"))
    parser.add_argument("--suite", default="pools", choices=("pools", "steps"))
    parser.add_argument("--rounds", required=True, type=int)
    parser.add_argument("names", nargs="+")
    arguments = parser.parse_args()
    _, sink = guard_streams()
    suite = import_from(f"kvspec_record.bench.{arguments.suite}", arguments.impl)
    peer: Callable[..., Any] = getattr(suite, arguments.engine)()
    facts: dict[str, Any] = {"engine": arguments.engine, "version": version(arguments.engine)}
    facts |= {"python": platform.python_version(), "threads": suite.threads()}
    write(sink, facts | {name: version(name) for name in ("torch", "numpy")})
    for name in arguments.names:
        ours, theirs = suite.MEASURED[name](peer, arguments.rounds)
        write(sink, {"name": name, "ours": ours, "peer": theirs})
    return 0


def import_from(name: str, folder: str) -> ModuleType:
    """Import a module that needs `kvspec_torch`, found in `folder` only if nowhere else, as are its libraries."""
    sys.path.append(folder)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(folder)
