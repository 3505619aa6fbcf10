"""What mlx-lm's cache classes hand out as their state, in both releases, and what is in it.

Up to 0.31 a state is arrays, and a `meta_state` beside it holds numbers as text; 0.32 has one state with all fields.
`STATE` and `OLD` name the fields, so that nothing else needs to know which release it is.
"""

from typing import Any

import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.models import cache as classes

from kvspec_record import mlx_lm_arrays

WITH_META = hasattr(classes._BaseCache, "meta_state")
"""Whether the release keeps numbers beside the state."""

STATE = {
    "KVCache": ("keys", "values", "offset"),
    "ConcatenateKVCache": ("keys", "values"),
    "QuantizedKVCache": ("keys", "values", "offset", "group_size", "bits"),
    "RotatingKVCache": ("keys", "values", "offset", "keep", "max_size", "_idx"),
    "ChunkedKVCache": ("keys", "values", "offset", "chunk_size", "start_position"),
    "ArraysCache": ("cache", "left_padding", "lengths"),
    "BatchKVCache": ("keys", "values", "offset", "left_padding", "_idx"),
    "BatchRotatingKVCache": (
        "keys", "values", "offset", "left_padding", "max_size", "_offset", "_idx", "rotated",
    ),
}  # fmt: skip

OLD: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "KVCache": (("keys", "values"), ()),
    "ConcatenateKVCache": (("keys", "values"), ()),
    "QuantizedKVCache": (("keys", "values"), ("offset", "group_size", "bits")),
    "RotatingKVCache": (("keys", "values"), ("keep", "max_size", "offset", "_idx")),
    "ChunkedKVCache": (("keys", "values"), ("chunk_size", "start_position")),
    "BatchKVCache": (("keys", "values", "offset", "left_padding"), ()),
    "BatchRotatingKVCache": (
        ("keys", "values", "offset", "left_padding"), ("max_size", "_offset", "_idx", "rotated"),
    ),
}  # fmt: skip

SLICED = ("KVCache", "ConcatenateKVCache", "QuantizedKVCache", "BatchKVCache")
"""Classes whose buffer is in the order of positions, from its beginning on."""

Part = tuple[str, str, Any, Any]
"""The path, the class's name, the state and the meta state (None in a release without) of one layer."""


def of(cache: Any) -> tuple[str, Any, Any]:
    """The class's name, the state and the meta state of a layer, as they are handed out."""
    return type(cache).__name__, cache.state, cache.meta_state if WITH_META else None


def made(name: str, state: Any, meta: Any) -> Any:
    """A cache of a state."""
    built = getattr(classes, name)
    return built.from_state(state, meta) if WITH_META else built.from_state(state)


def parts(path: str, name: str, state: Any, meta: Any) -> list[Part]:
    """The state of the layer, or those of the members of a `CacheList`."""
    if name != "CacheList":
        return [(path, name, state, meta)]
    if WITH_META:
        members = list(zip(meta[0], state, meta[1], strict=True))
    else:
        members = [(each, some, None) for some, each in state]
    return [part for i, member in enumerate(members) for part in parts(f"{path}.{i}", *member)]


def fields(name: str, state: Any, meta: Any) -> dict[str, Any]:
    """The state's fields by name, numbers as numbers; without those that the release does not keep."""
    if not WITH_META:
        return dict(zip(STATE[name], state, strict=True))
    if name == "ArraysCache":
        return {"cache": state}
    of_state, of_meta = OLD[name]
    numbers = [each == "True" if each in ("True", "False") else int(each) for each in meta]
    return dict(zip((*of_state, *of_meta), (*state, *numbers), strict=True))


def length(name: str, known: dict[str, Any]) -> int:
    """How many places of the buffer count, padding and all; a release that keeps no number for it cuts the rest off."""
    room = int((known["keys"] if isinstance(known["keys"], mx.array) else known["keys"][0]).shape[2])
    if name == "BatchRotatingKVCache":
        return room if known["rotated"] else min(room, int(known["_idx"]))
    if name == "BatchKVCache":
        return min(room, int(known.get("_idx", room)))
    return min(room, int(known["offset"]) - int(known.get("start_position", 0))) if "offset" in known else room


def held(part: Part) -> list[list[int]] | None:
    """Content, position and content of the value in the order of positions, a flat list a row; None without keys."""
    _, name, state, meta = part
    known = fields(name, state, meta)
    if known.get("keys") is None:
        return None
    end = length(name, known)
    numbers = known.get("group_size", 0), known.get("bits", 0)
    keys, values = (mlx_lm_arrays.plain(known[each], *numbers) for each in ("keys", "values"))
    if known.get("rotated"):
        keys, values = (mx.roll(each, -known["_idx"], axis=2) for each in (keys, values))
    rows = mlx_lm_arrays.of_rows(keys[:, :, :end], values[:, :, :end])
    if "left_padding" in known:
        # What was broken off by an exception need not agree with itself.
        rows = [row[max(0, first) :] for row, first in zip(rows, known["left_padding"].tolist(), strict=False)]
        # Padding that has left a window is not counted any more, and may still stand in the buffer, out of sight.
        rows = [[each for each in row if each[0] != mlx_lm_arrays.PADDING] for row in rows]
    if name == "RotatingKVCache":
        rows = [sorted(row, key=lambda each: each[1]) for row in rows]
    return [[number for each in row for number in each] for row in rows]


def offsets(part: Part) -> list[int]:
    """The offset of each row that the state has, if it has one."""
    _, name, state, meta = part
    offset = fields(name, state, meta).get("offset", [])
    return offset.tolist() if isinstance(offset, mx.array) else [offset] if isinstance(offset, int) else []


def reblocked(name: str, state: Any, meta: Any, size: int) -> Any:
    """The same state with its keys and values cut into blocks of `size` places and joined, and its arrays copied."""
    if name == "CacheList":
        if not WITH_META:
            return [(reblocked(each, some, None, size), each) for some, each in state]
        return [reblocked(each, some, more, size) for each, some, more in zip(meta[0], state, meta[1], strict=True)]
    if name not in SLICED or state[0] is None:
        return tree_map(lambda each: mx.array(each) if isinstance(each, mx.array) else each, state)
    end = length(name, fields(name, state, meta))
    blocks = [cut(state[:2], at, min(at + size, end)) for at in range(0, end, size)]
    joined = tree_map(lambda *each: mx.concatenate(each, axis=2), *blocks) if blocks else cut(state[:2], 0, 0)
    return (*joined, *(mx.array(each) if isinstance(each, mx.array) else each for each in state[2:]))


def cut(pair: Any, start: int, stop: int) -> Any:
    """Places [start, stop) of keys and values, quantized or not."""
    return tree_map(lambda each: each[:, :, start:stop], pair)
