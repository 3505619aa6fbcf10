"""Runs the installed engine releases and records what was seen in `docs/engines.json`, from which a page is generated.

Run it by hand after `kvspec engine install NAME==VERSION` for each release: `.venv/bin/python docs/record_engines.py`.
"""

import platform
from pathlib import Path
from typing import Any

import msgspec
from kvspec_diff import engines
from kvspec_diff.known import load
from kvspec_diff.recipes import RECIPES
from kvspec_diff.sources import OPTIONS, Release, described
from kvspec_diff.targets import judged

SEEN = Path(__file__).with_name("engines.json")


def main() -> None:
    """Every installed release whose allocators take programs."""
    found = [seen(each) for each in engines.installed() if each.engine in OPTIONS]
    text = msgspec.json.format(msgspec.json.encode({"python": platform.python_version(), "releases": found}), indent=1)
    SEEN.write_bytes(text + b"\n")


def seen(environment: engines.Environment) -> dict[str, Any]:
    """What a release offers, what it does with misuse, and what the known findings of its engine do on it."""
    engine, version = environment.engine, environment.version
    with Release(engine, version) as source:
        misuse = {name: {each.probe: each.happened for each in probes} for name, probes in source.misuse().items()}
        return {
            "engine": engine,
            "release": version,
            "operations": {part: sorted(source.target({"subject": part}).operations) for part in sorted(source.parts)},
            "misuse": misuse,
            "findings": findings(source),
        }


def findings(source: Release) -> dict[str, str]:
    """What came of the findings of any release of the engine."""
    found = {}
    for recipe in RECIPES:
        for version in {recipe.oldest, recipe.newest} if recipe.engine == source.engine else ():
            for known in load(source.engine, version):
                parts = described(known.trace.header.subject)
                assert parts is not None
                options = {name: value for name, value in parts.options.items() if name in OPTIONS[source.engine]}
                if options.get("subject", "pool") not in source.parts:
                    found[known.name] = "not run: the release's adapter has no such part"
                    continue
                (examined,) = source.target(options).examine((known.trace.program,))
                fault = judged(examined.program, examined.outcomes)
                found[known.name] = f"breaks {fault.law}" if fault else "no law is broken"
    return dict(sorted(found.items()))


if __name__ == "__main__":
    main()
