"""The JSON schemas in `docs/json`: fresh, one for each command with `--json`, and true of what is printed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cyclopts import App
from kvspec_cli import schemas
from kvspec_cli.app import APP

FOLDER = Path(__file__).parents[2] / "docs" / "json"


def commands(app: App, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Every command that has `--json`."""
    for name in app:
        if not name.startswith("-"):
            yield from commands(app[name], (*path, name))
    if (
        path
        and app.default_command
        and any("--json" in argument.names for argument in app.assemble_argument_collection())
    ):
        yield " ".join(path)


def wrong(schema: dict[str, Any], value: Any, whole: dict[str, Any], at: str = "$") -> list[str]:
    """Where a value is not what a schema says; of JSON Schema, what msgspec makes of kvspec's documents."""
    if "$ref" in schema:
        return wrong(whole["$defs"][schema["$ref"].removeprefix("#/$defs/")], value, whole, at)
    if "anyOf" in schema:
        return [] if any(not wrong(each, value, whole, at) for each in schema["anyOf"]) else [f"{at}: none of anyOf"]
    kinds = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None), "integer": int,
             "number": (int, float)}  # fmt: skip
    kind = schema.get("type")
    if kind is None:
        assert schema.keys() <= {"$schema", "title", "$defs", "default"}, schema
        return []
    if not isinstance(value, kinds[kind]) or (isinstance(value, bool) and kind != "boolean"):
        return [f"{at}: not {kind}"]
    found = []
    if kind == "array":
        for number, item in enumerate(value):
            found += wrong(schema.get("items", {}), item, whole, f"{at}[{number}]")
    if kind == "object":
        known = schema.get("properties", {})
        found += [f"{at}: no {name}" for name in schema.get("required", []) if name not in value]
        if known:
            found += [f"{at}: unknown {name}" for name in value if name not in known]
        for name, item in value.items():
            rest = schema.get("additionalProperties", {})
            found += wrong(known.get(name, rest if isinstance(rest, dict) else {}), item, whole, f"{at}.{name}")
    return found


def test_every_command_with_json_has_a_fresh_schema() -> None:
    plain = [command for command in schemas.DOCUMENTS if " --" not in command]
    assert sorted(plain) == sorted(commands(APP)), "add the command's document to kvspec_cli.schemas"
    there = {path.name: path.read_text() for path in FOLDER.glob("*.json")}
    made = {schemas.file_name(command): schemas.text(command) for command in schemas.DOCUMENTS}
    assert there == made, "run `python -m kvspec_cli.schemas docs/json`"


def test_writing_them_leaves_no_old_one(tmp_path: Path) -> None:
    (tmp_path / "gone.json").write_text("{}")
    schemas.write(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {schemas.file_name(name) for name in schemas.DOCUMENTS}


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("explore", ["--variant", "vllm-56524"]),
        ("explore", ["pages", "--pages", 1, "--requests", 1]),
        ("prove", ["--variant", "vllm-56524"]),
        ("diff", ["--subject", "reference", "--traces", 8]),
        ("engine list", []),
        ("report", ["--variant", "vllm-56524", "--no-proofs", "--seconds", 0, "--out", "{folder}/x.html"]),
    ],
)
def test_what_is_printed_is_as_the_schema_says(kvspec, tmp_path: Path, command: str, arguments: list[Any]) -> None:
    filled = [str(each).format(folder=tmp_path) for each in arguments]
    printed = json.loads(kvspec(*command.split(), *filled, "--json").out)
    schema = json.loads((FOLDER / schemas.file_name(command)).read_text())
    assert wrong(schema, printed, schema) == []
    msgspec.convert(printed, schemas.DOCUMENTS[command])
    if isinstance(printed, dict):
        name = min(printed)
        assert wrong(schema, {**printed, "more": 1}, schema) == ["$: unknown more"]
        assert wrong(
            schema, {key: value for key, value in printed.items() if key != min(schema_required(schema))}, schema
        )
        assert wrong(schema, {**printed, name: object()}, schema)


def schema_required(schema: dict[str, Any]) -> list[str]:
    required: list[str] = schema["$defs"][schema["$ref"].removeprefix("#/$defs/")]["required"]
    return required
