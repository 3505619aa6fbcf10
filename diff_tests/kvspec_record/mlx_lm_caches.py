"""mlx-lm's cache classes behind a toy model: the engine's half of `kvspec_record.caches`, for releases 0.31 and 0.32.

A layer's kind begins with a word for the class: `kv`, `rotating` (`size`, and `keep` if it is given), `quantized`
(`group`, `bits`), `arrays` (`count`), `chunked` (`size`), `concatenate`, and `list` for a `CacheList`; `quantizing`
(`start`, `group`, `bits`) is a `KVCache` that the engine's `maybe_quantize_kv_cache` turns into a quantized one once it
has `start` tokens. What follows says how it is used: `late`, by a model that turns its queries after the update, by the
offset from before, as gemma3n does; `again`, for rotating: several tokens at once also after a batch has begun to
rotate, which no generator does, and which is misuse otherwise for a batch with padding. Any other word there means
nothing here. Besides:

- `step`: the class's own attribute of that name, by which buffers grow (256 unless given). Nothing in the code under
  test is changed by it; the layer that is made last decides for its class and the batched one;
- `mask`: how the model asks for the mask: 0 with nothing, 1 for an array, 2 with the window's size;
- `prompt`, of which the first layer that has it decides: 0, a forward step takes all its tokens at once; 1, also, and
  the first prompts of a batch, when they differ in length, are padded on the left; n, at most n tokens at once, as the
  step size in `generate_step` and `PromptProcessingBatch.prompt`.

An object is a list of caches with one row until it is merged, as `BatchGenerator` does it, through its functions
`_merge_caches` and `_extend_cache`; of several rows from the beginning it is merged of empty ones. Prompts of different
lengths are padded on the right between `prepare` and `finalize`.
"""

import copy
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import mlx.core as mx
from mlx_lm.generate import _extend_cache, _merge_caches, maybe_quantize_kv_cache
from mlx_lm.models import cache as classes

from kvspec_record import mlx_lm_arrays, mlx_lm_forward, mlx_lm_members, mlx_lm_states
from kvspec_record.caches import Answer, Driver, Layers, Misuse, Nothing, Refused

STEP = 256
"""By how much the classes grow their buffers, unless a layer says otherwise."""

STEPPED = {
    "kv": ("KVCache", "BatchKVCache"), "rotating": ("RotatingKVCache", "BatchRotatingKVCache"),
    "quantized": ("QuantizedKVCache",), "quantizing": ("KVCache", "QuantizedKVCache"), "chunked": ("ChunkedKVCache",),
}  # fmt: skip
"""The classes that have a step, by the kind of layer that sets it."""

NO_BATCH = "does not yet support batching"
"""How the engine says that it has no batched form of a class."""


@dataclass
class Made:
    """A prompt cache: one cache a layer, of `rows` rows; `batched` if they are the classes for batches."""

    layers: Layers
    caches: list[Any]
    dtype: mx.Dtype
    rows: int = 1
    batched: bool = False

    def members(self) -> Iterator[tuple[str, str, dict[str, int], Any]]:
        """Path, kind, parameters and cache of each layer, those in lists too."""
        yield from _members("", self.layers, self.caches)

    def empty(self) -> bool:
        """Whether any layer has taken nothing yet."""
        return any(cache.empty() for _, _, _, cache in self.members())


@dataclass
class Handed:
    """What was handed out: a part a layer, by path; a state can be made an object again, `like` the one it was of."""

    parts: list[mlx_lm_states.Part] = field(default_factory=list)
    states: list[tuple[str, Any, Any]] = field(default_factory=list)
    like: Made | None = None


def _members(path: str, layers: Layers, caches: Any) -> Iterator[tuple[str, str, dict[str, int], Any]]:
    for i, (layer, cache) in enumerate(zip(layers, caches, strict=True)):
        here = f"{path}{i}"
        if layer[0] == "list":
            yield from _members(f"{here}.", layer[2], cache.caches)
        else:
            yield here, layer[0], layer[1], cache


def _every(layers: Layers) -> Iterator[list[Any]]:
    for layer in layers:
        yield layer
        yield from _every(layer[2] if layer[0] == "list" else [])


def word(kind: str) -> str:
    """What a kind begins with: the class."""
    return kind.partition("_")[0]


def _fresh(layer: list[Any]) -> Any:
    kind, given = word(layer[0]), layer[1]
    for name in STEPPED.get(kind, ()):
        getattr(classes, name).step = given.get("step", STEP)
    if kind == "list":
        return classes.CacheList(*map(_fresh, layer[2]))
    if kind in ("kv", "quantizing"):
        return classes.KVCache()
    if kind == "rotating":
        return classes.RotatingKVCache(given["size"], keep=given.get("keep", 0))
    if kind == "quantized":
        return classes.QuantizedKVCache(given["group"], given["bits"])
    if kind == "arrays":
        return classes.ArraysCache(given["count"])
    if kind == "chunked":
        return classes.ChunkedKVCache(given["size"])
    if kind == "concatenate":
        return classes.ConcatenateKVCache()
    raise Misuse(f"mlx-lm has no class for a layer of kind {kind}")


class MlxLm(Driver):
    """The driver of both releases; how their states differ is in `mlx_lm_states`."""

    operations = (
        "append", "padded", "trim", "copy", "file", "state", "restore", "slice", "read", "reblock", "merge", "extract",
        "filter", "extend",
    )  # fmt: skip
    storing = ("kv", "rotating", "rotating_keep", "quantized", "arrays", "list")

    def fresh(self, layers: Layers, rows: int, dtype: str) -> Made:
        """Empty caches; of several rows they are merged out of empty ones, as for prompts without a cache."""
        given = getattr(mx, dtype)
        singles = [Made(layers, [_fresh(layer) for layer in layers], given) for _ in range(rows)]
        return singles[0] if rows == 1 else self.merge(singles)

    def rows(self, made: Made) -> int:
        """How many rows it has."""
        return made.rows

    def append(self, made: Made, tokens: list[list[int]]) -> Answer:
        """The forward steps of a prompt, or of one token."""
        prompt = next((layer[1]["prompt"] for layer in _every(made.layers) if "prompt" in layer[1]), 0)
        lengths = list(map(len, tokens))
        width = max(lengths)
        if width > 1 and any(_rotates(kind, cache) for _, kind, _, cache in made.members()):
            raise Misuse("a generator gives a batch one token a step once it has begun to rotate")
        padding = [width - length for length in lengths]
        left = prompt == 1 and any(padding) and all(cache.empty() for _, _, _, cache in made.members())
        if left:
            tokens = [[0] * more + row for row, more in zip(tokens, padding, strict=True)]
            _pad_left(made, padding)
        else:
            tokens = [row + [0] * more for row, more in zip(tokens, padding, strict=True)]
            for cache in made.caches if any(padding) else ():
                cache.prepare(lengths=lengths, right_padding=padding)
        lead = padding if left else [0] * made.rows
        own = [range(first, first + length) for first, length in zip(lead, lengths, strict=True)]
        answer: Answer = {"reads": {}, "states": {}, "dtypes": {}}
        chunk = prompt if prompt > 1 else width
        for start in range(0, width, chunk):
            _forward(made, [row[start : start + chunk] for row in tokens], own, start, answer)
        for cache in made.caches if any(padding) and not left else ():
            cache.finalize()
        return answer

    def trim(self, made: Made, count: int) -> Answer:
        """`trim_prompt_cache`, which takes off as many as there are, and says how many."""
        before = _lengths(made)
        if made.batched and any(min(rows) < count for rows in before.values()):
            raise Misuse("a row of the batch has fewer tokens than are to be trimmed")
        can = classes.can_trim_prompt_cache(made.caches)
        taken = classes.trim_prompt_cache(made.caches, count)
        if not can:
            raise Refused("can_trim_prompt_cache says no")
        after = _lengths(made)
        return {"count": taken, "trimmed": {path: before[path][0] - after[path][0] for path in before}}

    def copy(self, made: Made) -> Made:
        """`copy.deepcopy`, as the server's prompt cache and `PromptProcessingBatch` do it."""
        return replace(made, caches=copy.deepcopy(made.caches))

    def file(self, made: Made) -> Made:
        """`save_prompt_cache`, then `load_prompt_cache`."""
        _says_what_it_holds(made)
        with tempfile.TemporaryDirectory() as folder:
            name = os.path.join(folder, "cache.safetensors")
            classes.save_prompt_cache(name, made.caches)
            caches = classes.load_prompt_cache(name)
            mx.eval([cache.state for cache in caches])
        return replace(made, caches=caches)

    def state(self, made: Made) -> Handed:
        """`state` of each layer, with its `meta_state` in a release that has it."""
        _says_what_it_holds(made)
        states = [mlx_lm_states.of(cache) for cache in made.caches]
        parts = [part for i, each in enumerate(states) for part in mlx_lm_states.parts(str(i), *each)]
        return Handed(parts, states, replace(made, caches=[]))

    def restore(self, state: Handed) -> Made:
        """`from_state` of each layer's class."""
        assert state.like is not None
        return replace(state.like, caches=[mlx_lm_states.made(*each) for each in state.states])

    def reblock(self, made: Made, size: int) -> Made:
        """States cut and joined, then `from_state`."""
        if size < 1 or made.empty():
            raise Nothing("there is nothing to cut")
        caches = []
        for cache in made.caches:
            name, state, meta = mlx_lm_states.of(cache)
            caches.append(mlx_lm_states.made(name, mlx_lm_states.reblocked(name, state, meta, size), meta))
        return replace(made, caches=caches)

    def slice(self, made: Made, start: int, stop: int) -> Handed:
        """Places of what `read` gives, of a single row."""
        if made.batched:
            raise Nothing("the rows of a batch stand at different places")
        return Handed([
            (path, name, _cut(state, start, stop), meta)
            for path, name, state, meta in self.read(made).parts if name in mlx_lm_states.SLICED
        ])  # fmt: skip

    def read(self, made: Made) -> Handed:
        """`keys_and_values`, or the first two of the state where the release has no such method."""
        if made.empty():
            raise Nothing("a layer holds nothing yet")
        parts: list[mlx_lm_states.Part] = []
        for path, _, _, cache in made.members():
            name, state, meta = mlx_lm_states.of(cache)
            if name != "ArraysCache":
                handed = cache.keys_and_values() if hasattr(cache, "keys_and_values") else state[:2]
                parts.append((path, name, (*handed, *state[2:]), meta))
        return Handed(parts)

    def held(self, handed: Handed) -> Answer:
        """What each part holds now, and the `offsets` that are in a state."""
        answer: Answer = {"held": {}, "states": {}, "offsets": {}}
        for part in handed.parts:
            path, name, state, meta = part
            if name == "ArraysCache":
                entries = mlx_lm_states.fields(name, state, meta)["cache"]
                known = [[] if entry is None else mlx_lm_arrays.states_in(entry) for entry in entries]
                answer["states"][path] = [list(row) for row in zip(*known, strict=False)]
            elif (rows := mlx_lm_states.held(part)) is not None:
                answer["held"][path] = rows
                if handed.states:
                    answer["offsets"][path] = mlx_lm_states.offsets(part)
        return answer

    def exported(self, made: Made) -> tuple[list[Any], dict[str, bytes]]:
        """See `kvspec_record.mlx_lm_members`."""
        if made.batched or made.empty():
            raise Nothing("a batch is not stored, nor is a cache that holds nothing")
        return mlx_lm_members.members(made.caches), mlx_lm_members.parts(made.caches)

    def imported(self, like: Made, parts: dict[str, bytes], position: int) -> Made:
        """See `kvspec_record.mlx_lm_members`."""
        return replace(like, caches=mlx_lm_members.put(like.caches, parts, position))

    def merge(self, some: list[Made]) -> Made:
        """A batch of single ones."""
        if any(each.batched for each in some):
            raise Nothing("a batch is not merged but extended")
        try:
            caches = _merge_caches([each.caches for each in some])
        except ValueError as error:
            raise _said(error, NO_BATCH) from error
        return replace(some[0], caches=caches, rows=len(some), batched=True)

    def extract(self, made: Made, row: int) -> Made:
        """`extract` of each layer, as for a request that has ended."""
        if not made.batched:
            raise Nothing("a single one has no rows to extract")
        if made.empty():
            raise Misuse("BatchGenerator extracts what was computed, never from a batch that is empty still")
        if mlx_lm_states.WITH_META and any(_of_a_state(cache) for _, _, _, cache in made.members()):
            raise Misuse("in this release a rotating batch that comes of a state is taken for rotated")
        return replace(made, caches=[cache.extract(row) for cache in made.caches], rows=1, batched=False)

    def filter(self, made: Made, rows: list[int]) -> None:
        """`filter` of each layer."""
        if not made.batched:
            raise Nothing("a single one has no rows to filter")
        for cache in made.caches:
            cache.filter(rows)
        made.rows = len(rows)

    def extend(self, made: Made, other: Made) -> None:
        """`_extend_cache`: the rows of another batch join."""
        if not (made.batched and other.batched):
            raise Nothing("single ones are merged")
        made.caches = _extend_cache(made.caches, other.caches)
        made.rows += other.rows


def _forward(made: Made, tokens: list[list[int]], own: list[range], start: int, answer: Answer) -> None:
    """One chunk through all layers; it begins at place `start` of the prompts, whose own tokens stand at `own`."""
    stop = start + len(tokens[0])
    places = [range(max(row.start, start) - start, max(min(row.stop, stop) - start, 0)) for row in own]
    for path, kind, given, cache in made.members():
        found: Any
        if word(kind) == "arrays":
            found = mlx_lm_forward.recurrent(cache, given["count"], tokens, made.dtype)
        else:
            found = mlx_lm_forward.attention(cache, given, kind, tokens, made.dtype)
        mlx_lm_forward.collect(answer, path, kind, found, places)
    for i, layer in enumerate(made.layers):
        if word(layer[0]) == "quantizing" and not made.batched:
            alone = [made.caches[i]]
            maybe_quantize_kv_cache(alone, layer[1]["start"], layer[1]["group"], layer[1]["bits"])
            made.caches[i] = alone[0]


def _rotates(kind: str, cache: Any) -> bool:
    """Whether it is a batch that has begun to rotate, with padding in it still."""
    return kind != "rotating_again" and getattr(cache, "rotated", False) and max(cache.left_padding.tolist()) > 0


def _pad_left(made: Made, padding: list[int]) -> None:
    """Tell the layers of an empty batch its left padding: `prepare`, and for arrays what their class takes for it."""
    for _, kind, _, cache in made.members():
        if word(kind) == "arrays":
            cache.left_padding = mx.array(padding)
        else:
            cache.prepare(left_padding=padding)


def _lengths(made: Made) -> dict[str, list[int]]:
    """The tokens of each row by each layer's own count, of those that have one."""
    members = [(path, cache) for path, _, _, cache in made.members() if hasattr(cache, "offset")]
    return {path: mlx_lm_forward.numbers(cache.offset, made.rows) for path, cache in members}


def _cut(state: Any, start: int, stop: int) -> Any:
    """The two first of a state cut to places [start, stop), and its count to what is left."""
    cut = mlx_lm_states.cut(state[:2], start, stop)
    places = int((cut[0] if isinstance(cut[0], mx.array) else cut[0][0]).shape[2])
    return (*cut, *(places if i == 0 else each for i, each in enumerate(state[2:])))


def _of_a_state(cache: Any) -> bool:
    """Whether it is a rotating batch that was made of a state: `from_state` goes past what sets `_lengths`."""
    return isinstance(cache, classes.BatchRotatingKVCache) and not hasattr(cache, "_lengths")


def _says_what_it_holds(made: Made) -> None:
    """A layer that holds nothing has no state, or one that cannot be saved, where there is a `meta_state` beside it."""
    if mlx_lm_states.WITH_META and (made.empty() or any(max(rows) < 1 for rows in _lengths(made).values())):
        raise Misuse("in this release the state of a cache that holds nothing is not defined")


def _said(error: ValueError, text: str) -> Exception:
    """A refusal, if the error says so."""
    return Refused(str(error)) if text in str(error) else error
