"""The cache classes of transformers, with a toy model around them (`transformers_model`), for `kvspec_record.caches`.

Rows of different lengths are padded on the left, with an attention mask, as `generate` does it. Tokens are taken off by
`crop` with a negative number, for which all of the last places must hold tokens. What the cache hands out is what
iterating over a `DynamicCache` gives, and a new one is made of that as it is made of what was gathered from several
processes (`ddp_cache_data`); to merge is to gather. A slice and a read are of the layers' `keys` and `values`.
"""

import copy
from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, StaticLayer

from kvspec_record import toy
from kvspec_record.caches import Answer, Driver, Misuse, Nothing, Refused
from kvspec_record.caller import one_line
from kvspec_record.transformers_model import PADDING, QUANTIZED, Model, attended, told, written


class Made:
    """A cache, and what the caller around it knows: its model, which places [row, place] hold tokens.

    `lowest` is, for each layer, the lowest position of which it may still hold what tokens before the window need.
    """

    def __init__(self, model: Model, cache: Any, seen: torch.Tensor, lowest: list[int]) -> None:
        self.model, self.cache, self.seen, self.lowest = model, cache, seen, lowest

    @property
    def rows(self) -> int:
        return self.seen.shape[0]

    @property
    def length(self) -> int:
        return self.seen.shape[1]

    @property
    def mask(self) -> torch.Tensor | None:
        """The attention mask that the caller passes: none when there is no padding."""
        return None if bool(self.seen.all()) else self.seen.long()


class Handed:
    """What was handed out: [(path, keys, values)], and where there was padding at that time."""

    def __init__(self, made: Made, parts: list[tuple[str, Any, Any]], whole: Any = None) -> None:
        self.model, self.seen, self.parts, self.whole = made.model, made.seen, parts, whole


class Caches(Driver):
    """The release's caches."""

    operations = ("append", "padded", "trim", "reset", "copy", "state", "restore", "slice", "read", "reblock", "merge",
                  "filter", "repeat", "reorder")  # fmt: skip

    def fresh(self, layers: list[Any], rows: int, dtype: str) -> Made:
        model = Model(layers, dtype)
        return Made(model, model.cache(rows), _nothing(rows), [0] * len(layers))

    def rows(self, made: Made) -> int:
        return made.rows

    def append(self, made: Made, tokens: list[list[int]]) -> Answer:
        model, cache, count = made.model, made.cache, max(map(len, tokens))
        padded = any(len(row) != count for row in tokens)
        if padded and made.length and any(kind.mask != "full" or kind.conv for kind in model.kinds):
            raise Misuse("padding behind tokens takes up the window")
        if model.length is not None and made.length + count > model.length:
            raise Misuse(f"a static cache of {model.length} places has no room for {made.length + count} tokens")
        new = torch.tensor([[False] * (count - len(row)) + [True] * len(row) for row in tokens])
        seen = torch.cat([made.seen, new], 1)
        mask = None if bool(seen.all()) else seen.long()
        step = _Step(made, tokens, count, mask, _positions(cache, model, made.length, mask, count))
        masks = model.masks(cache, count, made.rows, mask)
        made.seen = seen
        for i, kind in enumerate(model.kinds):
            if kind.conv:
                step.convolve(i)
            if kind.mask:
                step.attend(i, masks[i])
        for i in range(len(model.kinds)):
            if not made.model.recording:
                made.lowest[i] = max(made.lowest[i], made.length - _back(model, i, made.length))
        return step.answer

    def trim(self, made: Made, count: int) -> Answer:
        if count > made.length or not bool(made.seen[:, made.length - count :].all()):
            raise Misuse(f"the last {count} places do not all hold tokens")
        if not made.cache.is_croppable:
            raise Refused("is_croppable is False")
        left = made.length - count
        backs = [_back(made.model, i, left) for i in range(len(made.lowest))]
        if made.model.recording and any(left - back < low for back, low in zip(backs, made.lowest, strict=True)):
            raise Misuse("tokens before the last crop were not recorded")
        before = _lengths(made)
        try:
            made.cache.crop(-count)
        except RuntimeError as error:
            if "activate_past_recording" not in str(error):
                raise
            raise Refused(one_line(error)) from error
        made.seen = made.seen[:, :left]
        made.lowest = [max(low, left - back) for back, low in zip(backs, made.lowest, strict=True)]
        return {"count": count, "trimmed": {path: was - _lengths(made)[path] for path, was in before.items()}}

    def reset(self, made: Made) -> None:
        made.cache.reset()
        made.seen, made.lowest = _nothing(made.rows), [0] * len(made.lowest)

    def copy(self, made: Made) -> Made:
        return Made(made.model, copy.deepcopy(made.cache), made.seen, list(made.lowest))

    def state(self, made: Made) -> Handed:
        whole = _handed_out(made)
        return Handed(made, [(str(i), each[0], each[1]) for i, each in enumerate(whole)], whole)

    def restore(self, state: Handed) -> Made:
        return _of(state.model, state.whole, state.seen)

    def slice(self, made: Made, start: int, stop: int) -> Handed:
        parts = []
        for path, keys, values in _stored(made):
            first = made.length - keys.shape[2]
            places = slice(max(start - first, 0), max(stop - first, 0))
            parts.append((path, keys[:, :, places], values[:, :, places]))
        if not bool(made.seen.all()):
            raise Nothing("with padding, places are no positions")
        return Handed(made, parts)

    def read(self, made: Made) -> Handed:
        return Handed(made, _stored(made))

    def held(self, handed: Handed) -> Answer:
        held: dict[str, Any] = {}
        for path, keys, values in handed.parts:
            held[path] = [[] for _ in range(handed.seen.shape[0])]
            if keys is not None and keys.dim() == 4 and keys.shape[2]:
                parts = told(keys[:, 0], values[:, 0])
                held[path] = [row[row[:, 0] != PADDING].flatten().tolist() for row in parts]
        return {"held": held}

    def reblock(self, made: Made, size: int) -> Made:
        whole = []
        for keys, values, *more in _handed_out(made):
            if keys is not None:
                keys, values = (torch.cat(list(each.split(size, 2)), 2) for each in (keys, values))
            whole.append((keys, values, *more))
        return _of(made.model, whole, made.seen)

    def merge(self, some: list[Made]) -> Made:
        if len({each.length for each in some}) > 1:
            raise Misuse("what is gathered has the same length")
        whole = []
        for layers in zip(*map(_handed_out, some), strict=True):
            if any(keys is None for keys, *_ in layers):
                raise Nothing("there is nothing in them")
            keys, values, *more = zip(*layers, strict=True)
            whole.append((torch.cat(keys), torch.cat(values), *(each[0] for each in more)))
        return _of(some[0].model, whole, torch.cat([each.seen for each in some]))

    def filter(self, made: Made, rows: list[int]) -> None:
        made.cache.batch_select_indices(torch.tensor(rows))
        made.seen = made.seen[rows]

    def repeat(self, made: Made, times: int) -> None:
        made.cache.batch_repeat_interleave(times)
        made.seen = made.seen.repeat_interleave(times, 0)

    def reorder(self, made: Made, order: list[int]) -> None:
        made.cache.reorder_cache(torch.tensor(order))
        made.seen = made.seen[order]


class _Step:
    """A forward step over the layers."""

    def __init__(
        self, made: Made, tokens: list[list[int]], count: int, mask: torch.Tensor | None, positions: torch.Tensor
    ) -> None:
        self.cache, self.model, self.tokens, self.count = made.cache, made.model, tokens, count
        self.taken = self.model.recurrent_mask(made.cache, count, made.rows, mask)
        padding = [[PADDING] * (count - len(row)) + [toy.content(token) for token in row] for row in tokens]
        self.keys, self.values = written(torch.tensor(padding), positions, self.model.dtype)
        self.answer: Answer = {"reads": {}, "states": {}, "dtypes": {}}

    def attend(self, i: int, mask: Any) -> None:
        """A layer with keys and values."""
        heads = (-1, self.model.heads, -1, -1)
        keys, values = self.cache.update(self.keys.expand(heads), self.values.expand(heads), i)
        self._reads(str(i), attended(mask, self.count, told(keys[:, 0], values[:, 0])))
        self.answer["dtypes"][str(i)] = str(keys.dtype).removeprefix("torch.")
        if self.model.kinds[i].indexed:
            index = self.cache.update_indexer(self.keys[:, 0], i)
            if index.shape[1] != keys.shape[2]:
                raise ValueError(f"the index is of {index.shape[1]} places, and the keys are of {keys.shape[2]}")
            self._reads(f"{i}.index", attended(mask, self.count, _twice(index)))

    def convolve(self, i: int) -> None:
        """A layer with a convolution, and perhaps a state: as the models do it, a single token is written in place."""
        kind, size = self.model.kinds[i], self.model.layers[i][1]["kernel"]
        new = self.keys[:, 0].transpose(1, 2)
        if self.taken is not None:
            new = new * self.taken[:, None]
        for entry in range(kind.conv):
            before = self.cache.get_conv_state(i, state_idx=entry)
            state = self.cache.get_recurrent_state(i, state_idx=entry) if kind.states else None
            for each in (before, state):
                self._fitting(each)
            if before is not None and self.count == 1 and not self.cache.is_recording_past(i):
                columns = torch.cat([before, new], -1)
                before.copy_(columns[..., -before.shape[-1] :])
            else:
                columns = self.cache.update_conv_state(new, i, state_idx=entry, conv_kernel_size=size)
            self._reads(f"{i}.conv{entry or ''}", _convolved(columns, self.count, size))
            if kind.states:
                self._fold(i, entry, state)

    def _fold(self, i: int, entry: int, state: torch.Tensor | None) -> None:
        """Each row's state, folded over its tokens that the mask lets in, in the digits of a key."""
        numbers = [0] * len(self.tokens) if state is None else told(state, state)[:, 0, 0].tolist()
        for r, row in enumerate(self.tokens):
            first = self.count - len(row)
            for j in range(self.count):
                if self.taken is None or self.taken[r, j]:
                    numbers[r] = toy.fold(numbers[r], row[j - first] if j >= first else 1, entry)
        new, _ = written(torch.tensor(numbers)[:, None], torch.zeros((len(numbers), 1), dtype=torch.int64),
                         self.model.dtype)  # fmt: skip
        now = self.cache.update_recurrent_state(new[:, 0], i, state_idx=entry)
        self._fitting(now)
        path = f"{i}.state" if self.model.kinds[i].mask else str(i)
        states = self.answer["states"].setdefault(path, [[] for _ in numbers])
        for row, number in zip(states, told(now, now)[:, 0, 0].tolist(), strict=True):
            row.append(number)

    def _fitting(self, state: torch.Tensor | None) -> None:
        """Raise `ValueError` for a state with other rows than the step, with which no model could go on."""
        if state is not None and state.shape[0] != len(self.tokens):
            raise ValueError(f"there is a state of {state.shape[0]} rows for a step of {len(self.tokens)}")

    def _reads(self, path: str, reads: list[list[list[int]]]) -> None:
        """Those of the row's own tokens."""
        self.answer["reads"][path] = [
            queries[self.count - len(row) :] for queries, row in zip(reads, self.tokens, strict=True)
        ]


def _nothing(rows: int) -> torch.Tensor:
    return torch.zeros((rows, 0), dtype=torch.bool)


def _twice(keys: torch.Tensor) -> torch.Tensor:
    """Content, position, content again [row, place, 3] of keys that have no values."""
    parts = told(keys, keys)
    parts[..., 2] = parts[..., 0]
    return parts


def _convolved(columns: torch.Tensor, count: int, size: int) -> list[list[list[int]]]:
    """[row][query] what a causal convolution reads in the last `count` columns [row, digit, place], without zeros."""
    parts = _twice(columns.transpose(1, 2))
    reads = []
    for row in parts:
        ends = [row.shape[0] - count + j + 1 for j in range(count)]
        windows = [row[max(end - size, 0) : end] for end in ends]
        reads.append([window[window[:, 0] != 0].flatten().tolist() for window in windows])
    return reads


def _positions(cache: Any, model: Model, length: int, mask: torch.Tensor | None, count: int) -> torch.Tensor:
    """[row, token of the step], as `generate` and the models tell them; without attention there is nobody to ask."""
    if mask is not None:
        return (mask.cumsum(-1) - 1).masked_fill(mask == 0, 0)[:, -count:]
    start = int(cache.get_seq_length()) if any(kind.mask for kind in model.kinds) else length
    return (torch.arange(count) + start)[None]


def _back(model: Model, i: int, length: int) -> int:
    """How many positions before `length` the layer keeps; all, if it has no window."""
    kind, given = model.kinds[i], model.layers[i][1]
    backs = [given["size"] - 1] if kind.mask in ("sliding", "chunked") else []
    backs += [given["kernel"] - 1] if kind.conv else []
    return min([length, *backs])


def _lengths(made: Made) -> dict[str, int]:
    return {str(i): int(made.cache.layers[i].get_seq_length()) for i, kind in enumerate(made.model.kinds) if kind.mask}


def _handed_out(made: Made) -> list[Any]:
    if not isinstance(made.cache, DynamicCache):
        raise Misuse(f"a {type(made.cache).__name__} hands nothing out")
    return list(made.cache)


def _of(model: Model, whole: list[Any], seen: torch.Tensor) -> Made:
    length = seen.shape[1]
    cache = DynamicCache(whole, config=model.config)
    if model.recording:
        cache.activate_past_recording()
    return Made(model, cache, seen, [length - _back(model, i, length) for i in range(len(model.kinds))])


def _stored(made: Made) -> list[tuple[str, Any, Any]]:
    """Keys and values of each layer that has them by position, up to its end."""
    parts = []
    for i, layer in enumerate(made.cache.layers):
        if made.model.layers[i][0] in QUANTIZED or not isinstance(layer, DynamicLayer | StaticLayer):
            continue
        if layer.keys is not None and layer.keys.dim() == 4:
            end = made.length if isinstance(layer, StaticLayer) else layer.keys.shape[2]
            parts.append((str(i), layer.keys[:, :, :end], layer.values[:, :, :end]))
    if not parts:
        raise Nothing("no layer holds keys by position")
    return parts
