"""One chunk of a forward step through mlx-lm's caches, as its models do it, and what each query sees.

Each function has the model's own order of calls: the offset is read, the mask is asked for, keys and values are
handed in, and what comes back is what attention reads.
"""

from typing import Any

import mlx.core as mx
from mlx_lm.models import base

from kvspec_record import mlx_lm_arrays, toy
from kvspec_record.caches import Answer

Parameters = dict[str, int]


def attention(
    cache: Any, given: Parameters, kind: str, tokens: list[list[int]], dtype: mx.Dtype
) -> tuple[list[list[list[int]]], str]:
    """What each query of the chunk sees, [row][query], and the name of the stored dtype; 0 is a padding token.

    A position is told as attention sees it, from the query's: a kind that ends in `late` is used by a model that turns
    its queries after the update, by the offset which it read before it.
    """
    rows, count = len(tokens), len(tokens[0])
    chunked = kind.startswith("chunked")
    mask = _chunked(cache, given, count) if chunked else None
    offset = cache.offset
    first = numbers(offset, rows)
    if not chunked:
        hidden = mx.zeros((rows, count, 1), dtype)
        window, whole = given["size"] if given.get("mask") == 2 else None, given.get("mask") == 1
        mask = base.create_attention_mask(hidden, cache, window_size=window, return_array=whole)
    contents = [[toy.content(token) if token else mlx_lm_arrays.PADDING for token in row] for row in tokens]
    fetched = cache.update_and_fetch(*mlx_lm_arrays.written(contents, first, dtype, given.get("group", 0)))
    moved = (
        [now - was for now, was in zip(numbers(offset, rows), first, strict=True)] if kind.endswith("late") else None
    )
    quantized = getattr(cache, "group_size", 0), getattr(cache, "bits", 0)
    keys, values = (mlx_lm_arrays.plain(part, *quantized) for part in fetched)
    seen = (_seen_of_a_chunk if chunked else _seen)(mask, rows, count, keys.shape[2])
    reads = []
    for r, row in enumerate(mlx_lm_arrays.of_rows(keys, values)):
        shift = moved[r] if moved else 0
        flat = [(content, position - shift, value) for content, position, value in row]
        reads.append([[number for at in query for number in flat[at]] for query in seen[r]])
    return reads, mlx_lm_arrays.name_of(fetched[0])


def recurrent(cache: Any, count: int, tokens: list[list[int]], dtype: mx.Dtype) -> tuple[list[list[int]], str]:
    """The state after the chunk, [row][entry], and the name of its dtype."""
    rows, width = len(tokens), len(tokens[0])
    mask = base.create_ssm_mask(mx.zeros((rows, width, 1), dtype), cache)
    live = mx.broadcast_to(mx.array(True) if mask is None else mask, (rows, width)).tolist()
    states = []
    for entry in range(count):
        stored = cache[entry]
        now = [0] * rows if stored is None else mlx_lm_arrays.states_in(stored)
        for r, (row, counts) in enumerate(zip(tokens, live, strict=True)):
            for token, each in zip(row, counts, strict=True):
                now[r] = toy.fold(now[r], token, entry) if each else now[r]
        if len(now) != rows:
            raise ValueError(f"the state has {len(now)} rows, the input {rows}")
        cache[entry] = mlx_lm_arrays.state_of(now, dtype if stored is None else stored.dtype)
        states.append(now)
    cache.advance(width)
    return [list(each) for each in zip(*states, strict=True)], mlx_lm_arrays.name_of(cache[0])


def collect(into: Answer, path: str, kind: str, found: Any, own: list[range]) -> None:
    """Add what a chunk has shown: of the queries, those at the places of the chunk that are each row's own."""
    what, dtype = found
    into["dtypes"][path] = dtype
    if kind.startswith("arrays"):
        into["states"][path] = what
        return
    rows = into["reads"].setdefault(path, [[] for _ in own])
    for row, queries, places in zip(rows, what, own, strict=True):
        row += [queries[at] for at in places]


def numbers(offset: Any, rows: int) -> list[int]:
    """The offset of each row, as it is now."""
    return [offset] * rows if isinstance(offset, int) else [int(each) for each in offset.tolist()]


def _chunked(cache: Any, given: Parameters, count: int) -> mx.array:
    """The mask that Llama 4 makes by itself for chunked attention, and what it does to the cache before."""
    cache.maybe_trim_front()
    start, offset = cache.start_position, cache.offset
    places = mx.arange(start, offset + count)
    queries = mx.arange(offset, offset + count)[:, None]
    return (places // given["size"] == queries // given["size"]) & (places <= queries)


def _seen(mask: Any, rows: int, count: int, places: int) -> list[list[list[int]]]:
    """The places that each query may attend to, [row][query]."""
    if mask is None:
        return [[list(range(places))] * count] * rows
    if isinstance(mask, str):
        return [[list(range(places - count + 1 + query)) for query in range(count)]] * rows
    whole = mx.broadcast_to(mask, (rows, 1, count, places))[:, 0].tolist()
    return [[[at for at, through in enumerate(query) if through] for query in row] for row in whole]


def _seen_of_a_chunk(mask: Any, rows: int, count: int, places: int) -> list[list[list[int]]]:
    """The same for the mask of `_chunked`, which need not fit what the cache gives back."""
    chunk = mx.broadcast_to(mask, (count, places)).tolist()
    return [[[at for at, through in enumerate(query) if through] for query in chunk]] * rows
