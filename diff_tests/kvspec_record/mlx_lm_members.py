"""The members of mlx-lm's caches of one sequence: their rows and states as bytes, and caches made of these again.

What they are is told as `kvspec.members` has it, in plain data. A row of `KVCache` and of `QuantizedKVCache` has all
heads of a token. A `RotatingKVCache` is a ring in which position i stands at i modulo its size; with `keep` it is two
members: the rows that are kept, filled up with zeros, as a state, and a ring of what is left of its size. Each slot of
an `ArraysCache` is a state, and an empty slot absent. A `CacheList` is a group.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.models import cache as classes

Member = dict[str, Any]
Parts = dict[str, bytes]

DTYPES = {"float32": mx.float32, "float16": mx.float16, "bfloat16": mx.bfloat16, "int32": mx.int32}
INTEGERS = {2: mx.uint16, 4: mx.int32}
NAMES = {mx.float32: "float32", mx.float16: "float16", mx.bfloat16: "bfloat16", mx.int32: "int32", mx.uint32: "int32"}
BOTH = ("keys", "values")
PACKED = ("values", "scales", "biases")


def position(cache: list[Any]) -> int:
    """How many tokens a cache has seen, as its first member with an offset says; 0 where none has one."""
    offsets = [each.offset for each in _flat(cache) if hasattr(each, "offset")]
    return int(offsets[0]) if offsets else 0


def members(cache: list[Any]) -> list[Member]:
    """What a cache that has seen at least one token is made of."""
    return [_member(each) for each in cache]


def parts(cache: list[Any]) -> Parts:
    """All rows, rings and states, by path."""
    return {path: _bytes(rows) for path, rows in _arrays(cache, "")}


def put(cache: list[Any], given: Mapping[str, bytes], at: int) -> list[Any]:
    """A cache of the same members as this one, at position `at`, made of these parts by `from_state`."""
    made = [_made(each, f"{index}", given, at) for index, each in enumerate(cache)]
    mx.eval([rows for _, rows in _arrays(made, "")])
    return made


# What is there.


def _flat(cache: Any) -> Iterator[Any]:
    for each in cache:
        if isinstance(each, classes.CacheList):
            yield from _flat(each.caches)
        else:
            yield each


def _member(cache: Any) -> Member:
    if isinstance(cache, classes.CacheList):
        return {"type": "group", "members": [_member(each) for each in cache.caches]}
    if isinstance(cache, classes.ArraysCache):
        slots = [_leaf("recurrent", {"state": each}, ()) for each in cache.cache if each is not None]
        states = iter(slots)
        found = [{"type": "absent"} if each is None else next(states) for each in cache.cache]
        return {"type": "group", "members": found}
    if isinstance(cache, classes.QuantizedKVCache):
        return _leaf("quantized", _quantized(cache), (0,), bits=cache.bits, group=cache.group_size)
    if isinstance(cache, classes.RotatingKVCache):
        window = _leaf("window", _ring(cache), (0,), size=cache.max_size - cache.keep)
        if not cache.keep:
            return window
        return {"type": "group", "members": [_leaf("recurrent", _kept(cache), ()), window]}
    return _leaf("plain", _plain(cache), (0,))


def _leaf(kind: str, arrays: Mapping[str, Any], without: tuple[int, ...], **more: int) -> Member:
    """`without` are the axes that count rows."""
    shown = [
        {"name": name, "shape": rows.shape[len(without) :], "dtype": NAMES[rows.dtype]} for name, rows in arrays.items()
    ]
    return {"type": kind, "parts": shown, **more}


def _arrays(cache: Any, before: str) -> Iterator[tuple[str, Any]]:
    """By path, each part as an array of which the rows are the first axis."""
    for index, each in enumerate(cache):
        path = f"{before}{index}"
        if isinstance(each, classes.CacheList):
            yield from _arrays(each.caches, f"{path}.")
            continue
        if isinstance(each, classes.ArraysCache):
            yield from ((f"{path}.{slot}.state", state) for slot, state in enumerate(each.cache) if state is not None)
            continue
        if isinstance(each, classes.RotatingKVCache) and each.keep:
            yield from ((f"{path}.0.{name}", rows) for name, rows in _kept(each).items())
            yield from ((f"{path}.1.{name}", rows) for name, rows in _ring(each).items())
            continue
        of = {classes.QuantizedKVCache: _quantized, classes.RotatingKVCache: _ring}.get(type(each), _plain)
        yield from ((f"{path}.{name}", rows) for name, rows in of(each).items())


def _rows(array: Any, stop: int) -> Any:
    """`(batch, heads, rows, width)` as `(rows, batch, heads, width)`, the first `stop` rows."""
    return array[:, :, :stop].transpose(2, 0, 1, 3)


def _plain(cache: Any) -> dict[str, Any]:
    return {name: _rows(getattr(cache, name), cache.offset) for name in BOTH}


def _quantized(cache: Any) -> dict[str, Any]:
    return {
        f"{name}_{part}": _rows(array, cache.offset)
        for name in BOTH
        for part, array in zip(PACKED, getattr(cache, name), strict=True)
    }


def _kept(cache: Any) -> dict[str, Any]:
    """The first `keep` rows, with zeros where there are none yet."""
    count = min(cache.keep, cache.offset)
    found = {}
    for name in BOTH:
        rows = _rows(getattr(cache, name), count)
        found[name] = mx.concatenate([rows, mx.zeros((cache.keep - count, *rows.shape[1:]), rows.dtype)])
    return found


def _ring(cache: Any) -> dict[str, Any]:
    """The last rows of a rotating cache, in the slots that they have in a ring of its size less what it keeps."""
    size = cache.max_size - cache.keep
    count = min(cache.offset, size)
    start = cache.offset - count
    found = {}
    for name in BOTH:
        ordered = cache._temporal_order(getattr(cache, name)[:, :, : _filled(cache)])
        rows = _rows(ordered, ordered.shape[2])[ordered.shape[2] - count :]
        slots = [row for row, _ in sorted(enumerate(range(start, start + count)), key=lambda pair: pair[1] % size)]
        found[name] = rows[mx.array(slots, dtype=mx.int32)] if slots else rows
    return found


def _filled(cache: Any) -> int:
    """How much of a rotating cache's buffer has been written."""
    length = int(cache.keys.shape[2])
    return min(length, cache.offset) if cache.offset < length else length


# What is made of it.


def _made(like: Any, path: str, given: Mapping[str, bytes], at: int) -> Any:
    if isinstance(like, classes.CacheList):
        return classes.CacheList(*(_made(each, f"{path}.{index}", given, at) for index, each in enumerate(like.caches)))
    if isinstance(like, classes.ArraysCache):
        made = classes.ArraysCache(len(like.cache))
        for slot, state in enumerate(like.cache):
            if state is not None:
                made[slot] = _array(given[f"{path}.{slot}.state"], state.shape, state.dtype)
        return made
    if isinstance(like, classes.QuantizedKVCache):
        keys, values = (
            tuple(
                _columns(given[f"{path}.{name}_{part}"], array)
                for part, array in zip(PACKED, getattr(like, name), strict=True)
            )
            for name in BOTH
        )
        return _stated(like, (keys, values), (at, like.group_size, like.bits))
    if isinstance(like, classes.RotatingKVCache):
        keys, values = (_turned(like, path, name, given, at) for name in BOTH)
        return _stated(like, (keys, values), (at, like.keep, like.max_size, int(keys.shape[2])))
    keys, values = (_columns(given[f"{path}.{name}"], getattr(like, name)) for name in BOTH)
    return _stated(like, (keys, values), (at,))


def _stated(like: Any, arrays: tuple[Any, ...], numbers: tuple[int, ...]) -> Any:
    """By `from_state`, as the release has it: before 0.32 the numbers were apart, in another order, and text."""
    of = type(like)
    if not hasattr(of, "meta_state"):
        return of.from_state((*arrays, *numbers))
    if of is classes.RotatingKVCache:
        at, keep, size, cursor = numbers
        numbers = (keep, size, at, cursor)
    return of.from_state(arrays, "" if of is classes.KVCache else tuple(map(str, numbers)))


def _turned(like: Any, path: str, name: str, given: Mapping[str, bytes], at: int) -> Any:
    """The buffer of a rotating cache: what it keeps, then the rest, oldest first."""
    size, array = like.max_size - like.keep, getattr(like, name)
    window = f"{path}.1.{name}" if like.keep else f"{path}.{name}"
    rows = _table(given[window], array)
    count = int(rows.shape[0])
    start = at - count
    kept = min(at, like.keep)
    order = [place % size for place in range(max(start, kept), at)]
    turned = rows[mx.array(order, dtype=mx.int32)] if order else rows[:0]
    if like.keep:
        turned = mx.concatenate([_table(given[f"{path}.0.{name}"], array)[:kept], turned])
    return mx.contiguous(turned.transpose(1, 2, 0, 3))


def _table(data: bytes, like: Any) -> Any:
    """Rows of the width that the array has."""
    batch, heads, _, width = like.shape
    return _array(data, (-1, batch, heads, width), like.dtype)


def _columns(data: bytes, like: Any) -> Any:
    return mx.contiguous(_table(data, like).transpose(1, 2, 0, 3))


def _bytes(array: Any) -> bytes:
    whole = mx.contiguous(array)
    return b"" if whole.size == 0 else np.array(whole.view(INTEGERS[whole.dtype.size])).tobytes()


def _array(data: bytes, shape: tuple[int, ...], dtype: Any) -> Any:
    integers = np.frombuffer(data, dtype={2: np.uint16, 4: np.int32}[dtype.size])
    return mx.array(integers).view(dtype).reshape(shape)
