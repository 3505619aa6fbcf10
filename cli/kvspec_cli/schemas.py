"""JSON schemas of what `--json` prints. `python -m kvspec_cli.schemas FOLDER` writes them, one file a command."""

import sys
from pathlib import Path
from typing import Any

import msgspec

from kvspec_cli import (
    bench,
    caches,
    capacity,
    check,
    diff,
    engine,
    explore,
    findings,
    ledger,
    prove,
    report,
    scheduler,
    store,
    torture,
)  # fmt: skip

DRAFT = "https://json-schema.org/draft/2020-12/schema"

DOCUMENTS: dict[str, Any] = {
    "check": check.Result,
    "prove": prove.Result,
    "prove --ledger": ledger.Ledger,
    "explore": explore.Explored,
    "diff": diff.Compared,
    "diff --laws C": capacity.Reserved,
    "diff --laws A,R,P": scheduler.Scheduled,
    "diff --engine mlx-lm": caches.Cached,
    "replay": findings.Replayed,
    "report": report.Reported,
    "engine install": list[engine.Installed],
    "engine list": list[engine.Installed],
    "engine remove": list[str],
    "bench pages": bench.Result,
    "bench step": bench.Result,
    "bench store": bench.Result,
    "store verify": store.Verified,
    "store upgrade": store.Upgraded,
    "store gc": store.Collected,
    "store stats": store.Stats,
    "store torture": torture.Tortured,
}
"""What each command prints with `--json`; an option that changes it stands with the command."""


def schema(command: str) -> dict[str, Any]:
    """The schema of a command's document."""
    (root,), components = msgspec.json.schema_components([DOCUMENTS[command]], ref_template="#/$defs/{name}")
    return {"$schema": DRAFT, "title": f"kvspec {command} --json", **root, "$defs": components}


def text(command: str) -> str:
    """The schema as it stands in its file."""
    return msgspec.json.format(msgspec.json.encode(schema(command))).decode() + "\n"


def file_name(command: str) -> str:
    """`engine-list.json`, `prove-ledger.json`."""
    return f"{command.replace(' --', '-').replace(' ', '-').replace(',', '')}.json"


def write(folder: Path) -> None:
    """Write every schema; files of commands that are gone are deleted."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.json"):
        old.unlink()
    for command in DOCUMENTS:
        (folder / file_name(command)).write_text(text(command))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
