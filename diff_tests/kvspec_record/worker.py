"""The worker: it reads programs from standard input, runs each on a fresh pool and writes what happened, one line each.

JSON Lines. The first line is the worker's, `{"protocol": 1, "subject": ..., "version": ..., "capabilities": {subject:
[operations]}, "page_sizes": {allocator: [sizes]}, "plants": [...], "probes": [...]}`; the last three may be missing.
Then each request is answered by one line, in order:

- `{"id": n, "configuration": {"pages": ..., "page_size": ..., options}, "operations": [...]}` by `{"id": n, "outcomes":
  [...]}`: one outcome an operation, fewer only when the last one's status is `error` (the engine raised);
- `{"id": n, "batch": [...]}` by `{"id": n, "answers": [...]}`, by an adapter that has a method `batch`;
- `{"id": n, "configuration": {options}, "probe": name}` by `{"id": n, "happened": "one line"}`;
- either by `{"id": n, "error": "one line"}` when the request is malformed; `id` is null when it cannot be told.

What the engine prints goes to standard error: the protocol's own file descriptor is out of its reach.
"""

import argparse
import importlib
import json
import os
import signal
import sys
from typing import Any, BinaryIO, Protocol

from kvspec_record.caller import Caller, RequestError, one_line

PROTOCOL = 1
ADAPTERS = {
    "sglang": "kvspec_record.sglang", "vllm": "kvspec_record.vllm", "mlx-lm": "kvspec_record.mlx_lm",
    "transformers": "kvspec_record.transformers", "example": "kvspec_record.example",
}  # fmt: skip


class Adapter(Protocol):
    """An engine: `capabilities` lists the operations that each of its subjects takes, `plants` the faults on offer.

    `page_sizes` lists, for each of its allocators, the page sizes that it takes; without a row it takes any.
    """

    name: str
    version: str
    capabilities: dict[str, tuple[str, ...]]
    page_sizes: dict[str, tuple[int, ...]]
    plants: tuple[str, ...]
    probes: tuple[str, ...]

    def caller(self, pages: int, page_size: int, options: dict[str, Any]) -> Caller:
        """A caller of a fresh, empty pool; `RequestError` for options that do not go together."""
        ...

    def probe(self, name: str, options: dict[str, Any]) -> str:
        """Do the misuse called `name` to a fresh pool and say in one line what happened."""
        ...


def respond(adapter: Adapter, line: bytes) -> dict[str, Any]:
    """The answer to one request line; whatever is wrong with it, there is one."""
    try:
        request = json.loads(line)
    except (ValueError, RecursionError) as error:
        return {"id": None, "error": f"not JSON: {one_line(error)}"}
    identity = request.get("id") if isinstance(request, dict) else None
    if type(identity) is not int:
        return {"id": None, "error": "a request is an object with an integer id"}
    try:
        return {"id": identity, **serve(adapter, request)}
    except RequestError as error:
        return {"id": identity, "error": str(error)}
    except Exception as error:
        # What an operation raises is its outcome; this is an engine that cannot even be set up.
        return {"id": identity, "error": one_line(error)}


def serve(adapter: Adapter, request: dict[str, Any]) -> dict[str, Any]:
    """Run the request's program, probe or batch."""
    batch = getattr(adapter, "batch", None)
    if batch is not None and isinstance(request.get("batch"), list) and len(request) == 2:
        return {"answers": batch(request["batch"])}
    kind = "probe" if "probe" in request else "operations"
    unknown = [name for name in request if name not in ("id", "configuration", kind)]
    if unknown:
        raise RequestError(f"unknown field {unknown[0]!r}")
    options = request.get("configuration")
    if not isinstance(options, dict):
        raise RequestError("a request has a configuration, an object")
    asked = request.get(kind)
    if kind == "probe":
        if asked not in adapter.probes:
            raise RequestError(f"unknown probe {asked!r}: there are {', '.join(adapter.probes)}")
        return {"happened": adapter.probe(asked, options)}
    if not isinstance(asked, list):
        raise RequestError("a request has operations, a list")
    pages, page_size = size(options, "pages", 2**22), size(options, "page_size", 1024)
    return {"outcomes": adapter.caller(pages, page_size, options).run(asked)}


def size(options: dict[str, Any], name: str, most: int) -> int:
    """Take `name`, an integer from 1 to `most`, out of the options."""
    value = options.pop(name, None)
    if type(value) is not int or not 1 <= value <= most:
        raise RequestError(f"{name} is {value!r}: it must be an integer from 1 to {most}")
    return value


def guard_streams() -> tuple[BinaryIO, BinaryIO]:
    """The protocol's streams, moved to descriptors of their own: 0 becomes empty and 1 the same as 2."""
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    os.dup2(2, 1)
    return source, sink


def main() -> int:
    """Serve until standard input ends. Status 2: an unknown adapter or plant; 3: the engine cannot be imported."""
    parser = argparse.ArgumentParser(prog="kvspec_record.worker", description="Run programs on an engine's allocator.")
    parser.add_argument("--adapter", required=True, choices=sorted(ADAPTERS))
    parser.add_argument("--plant", action="append", default=[], metavar="NAME", help="make the engine wrong, by name")
    arguments = parser.parse_args()
    source, sink = guard_streams()
    # Ctrl-C is for whoever started the worker, and its end of the pipe is what ends us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        adapter: Adapter = importlib.import_module(ADAPTERS[arguments.adapter]).Adapter(tuple(arguments.plant))
    except RequestError as error:
        print(error, file=sys.stderr)
        return 2
    except ImportError as error:
        print(f"cannot import the engine: {one_line(error)}", file=sys.stderr)
        return 3
    hello = {"protocol": PROTOCOL, "subject": adapter.name, "version": adapter.version}
    offers = {name: getattr(adapter, name) for name in ("capabilities", "page_sizes", "plants", "probes")}
    try:
        write(sink, {**hello, **offers})
        for line in source:
            write(sink, respond(adapter, line))
    except BrokenPipeError:
        os._exit(0)
    return 0


def write(sink: BinaryIO, answer: dict[str, Any]) -> None:
    """Write one line, at once."""
    sink.write(json.dumps(answer, separators=(",", ":")).encode() + b"\n")
    sink.flush()


if __name__ == "__main__":
    sys.exit(main())
