"""What a model of transformers does around its cache: its configuration, its masks, what attention reads of its keys.

Kinds of layers, with their parameters; a cache is a `DynamicCache`, a `StaticCache` or a `QuantizedCache` of the layers
that its configuration names:

- `dynamic`; `sliding` (size, record); `chunked` (size, record); `indexed`; `conv` (kernel, record), a convolution;
  `linear` (kernel), with a state; `linear_twice` (kernel), with two; `hybrid` and `hybrid_conv` (kernel, record), with
  keys and values too; `hybrid_sliding` (size, kernel);
- `static` (length, early); `static_sliding`, `static_sliding_wide`, `static_chunked` (size, length); `static_indexed`
  (length); `static_hybrid` and `static_hybrid_conv` (kernel, length, record); beside them the convolutions and states;
- `hqq` (bits, residual), in groups of `toy.WIDTH` along a key's or a value's digits; `fp8`.

`record` is 1 for a cache that records its past so that tokens can be taken off, `early` for one that is set up before
its first step. Positions are those that the model gives: from the length of the cache or, with padding, by counting
the mask's tokens.
"""

from typing import Any, NamedTuple

import torch
from transformers import DynamicCache, LlamaConfig, StaticCache, masking_utils
from transformers.cache_utils import Cache, Fp8QuantizedLayer, HQQQuantizedLayer, QuantizedCache

from kvspec_record import toy

Member = tuple[str, dict[str, int]]
PADDING = toy.content(1)
"""The content of padding: no token has it."""

_SHIFTS = torch.tensor([28, 24, 20, 16, 12, 8, 4, 0])


class Kind(NamedTuple):
    """A layer's type in the configuration; whether it has attention and its mask, a convolution, states."""

    type: str
    mask: str = ""
    states: int = 0
    conv: int = 0
    indexed: bool = False


KINDS = {
    "dynamic": Kind("full_attention", "full"),
    "sliding": Kind("sliding_attention", "sliding"),
    "chunked": Kind("chunked_attention", "chunked"),
    "indexed": Kind("indexed_attention", "full", indexed=True),
    "conv": Kind("conv", conv=1),
    "linear": Kind("linear_attention", states=1, conv=1),
    "linear_twice": Kind("linear_attention", states=2, conv=2),
    "hybrid": Kind("hybrid", "full", states=1, conv=1),
    "hybrid_conv": Kind("hybrid", "full", conv=1),
    "hybrid_sliding": Kind("hybrid_sliding", "sliding", states=1, conv=1),
}
KINDS |= {f"static_{name}": kind for name, kind in KINDS.items() if kind.mask and name != "dynamic"}
KINDS |= {"static_sliding_wide": KINDS["sliding"]}
KINDS |= {"static": KINDS["dynamic"], "hqq": KINDS["dynamic"], "fp8": KINDS["dynamic"]}


class Model:
    """A model's layers. Raises `ValueError` for a kind that there is not, or for two of different caches."""

    def __init__(self, layers: list[Any], dtype: str) -> None:
        self.layers: list[Member] = [(layer[0], layer[1]) for layer in layers]
        unknown = [name for name, _ in self.layers if name not in KINDS]
        if unknown:
            raise ValueError(f"there is no layer of kind {unknown[0]!r}")
        self.dtype = getattr(torch, dtype)
        self.kinds = [KINDS[name] for name, _ in self.layers]
        # HQQ packs two groups into one.
        self.heads = 2 if any(name == "hqq" for name, _ in self.layers) else 1
        self.recording = any(given.get("record") for _, given in self.layers)
        self.early = any(given.get("early") for _, given in self.layers)
        lengths = [given["length"] for _, given in self.layers if "length" in given]
        self.length = max(lengths, default=None)
        self.config, self.configs = self._config()
        first: dict[Any, int] = {}
        self.masked_as = [first.setdefault(self._mask(i), i) for i in range(len(self.layers))]

    def cache(self, rows: int) -> Any:
        """A fresh cache of the model."""
        if any(name in QUANTIZED for name, _ in self.layers):
            made: Any = self._quantized()
        elif self.length is not None:
            made = StaticCache(config=self.config, max_cache_len=self.length)
        else:
            made = DynamicCache(config=self.config)
        if self.early:
            made.early_initialization(rows, self.heads, toy.WIDTH, self.dtype, torch.device("cpu"))
        if self.recording:
            made.activate_past_recording()
        return made

    def masks(self, cache: Any, count: int, rows: int, seen: torch.Tensor | None) -> list[Any]:
        """For each layer the mask that the model makes before its step of `count` tokens, None for what has none.

        `seen` is [row, position], false where there is padding, None if there is none.
        """
        embeds = torch.empty((rows, count, 1), dtype=self.dtype)
        made: dict[int, Any] = {}
        for i in self.masked_as:
            if i not in made and self.kinds[i].mask:
                function = MASKS[self.kinds[i].mask]
                more = {"allow_is_causal_skip": False} if self.kinds[i].indexed else {}
                made[i] = function(self.configs[i], embeds, seen, cache, layer_idx=i, **more)
        return [made.get(i) for i in self.masked_as]

    def recurrent_mask(self, cache: Any, count: int, rows: int, seen: torch.Tensor | None) -> Any:
        """The mask [row, token of the step] of layers that are recurrent; None if all are to be taken."""
        embeds = torch.empty((rows, count, 1), dtype=self.dtype)
        return masking_utils.create_recurrent_attention_mask(self.config, embeds, seen, cache=cache)

    def _quantized(self) -> Any:
        """A `QuantizedCache` where all layers are the same, as it has them; else the layers one by one."""
        name, given = self.layers[0]
        if all(layer == self.layers[0] for layer in self.layers):
            return QuantizedCache(name, self.config, **_quantization(given))
        return Cache(layers=[QUANTIZED[name](**_quantization(given)) for name, given in self.layers])

    def _mask(self, i: int) -> tuple[Any, ...]:
        kind, given = self.kinds[i], self.layers[i][1]
        return kind.mask, given.get("size"), kind.indexed, i if not kind.mask else None

    def _config(self) -> tuple[Any, list[Any]]:
        """The configuration of the model, and the one that each layer's mask is made with."""
        each = [
            {
                "sliding_window": given.get("size") if kind.mask == "sliding" else None,
                "attention_chunk_size": given.get("size") if kind.mask == "chunked" else None,
                "number_of_conv_states": max(kind.conv, 1),
            }
            for kind, (_, given) in zip(self.kinds, self.layers, strict=True)
        ]
        some = {name: {row[name] for row in each} - {None} for name in each[0]}
        alike = all(len(values) < 2 for values in some.values())
        alike = alike and not (some["sliding_window"] and some["attention_chunk_size"])
        given = (
            {name: values.pop() for name, values in some.items() if values}
            if alike
            else {"per_layer_config": dict(enumerate(each))}
        )
        config = LlamaConfig(
            num_hidden_layers=len(self.layers), hidden_size=toy.WIDTH, num_attention_heads=1, num_key_value_heads=1,
            layer_types=[kind.type for kind in self.kinds], **given,
        )  # fmt: skip
        config._attn_implementation = "sdpa"
        return config, [config] * len(each) if alike else config.per_layer_config


def _quantization(given: dict[str, int]) -> dict[str, int]:
    if not given:
        return {}
    return {
        "nbits": given["bits"], "axis_key": 1, "axis_value": 1, "q_group_size": toy.WIDTH,
        "residual_length": given["residual"],
    }  # fmt: skip


QUANTIZED: dict[str, Any] = {"hqq": HQQQuantizedLayer, "fp8": Fp8QuantizedLayer}
MASKS: dict[str, Any] = {
    "full": masking_utils.create_causal_mask,
    "sliding": masking_utils.create_sliding_window_causal_mask,
    "chunked": masking_utils.create_chunked_causal_mask,
}


def written(contents: torch.Tensor, positions: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values [row, 1, token, digit] of contents and positions [row, token]: `toy.key` and `toy.value`."""
    digits = contents[..., None] >> _SHIFTS & 15
    places = positions[..., None] >> _SHIFTS[4:] & 15
    nothing = torch.zeros((*contents.shape, toy.WIDTH), dtype=torch.int64)
    keys, values = nothing, nothing.clone()
    keys[..., 1], keys[..., 2:10], keys[..., 10:14] = toy.LARGEST, digits, places
    values[..., :8], values[..., 8] = digits.flip(-1), toy.LARGEST
    return keys[:, None].to(dtype), values[:, None].to(dtype)


def told(keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Content, position and content of the value [row, place, 3], of keys and values [row, place, digit]."""
    key, value = keys.round().long() & 15, values.round().long() & 15
    position = (key[..., 10:14] << _SHIFTS[4:]).sum(-1)
    position -= (position > 32767) * 65536
    content, other = (key[..., 2:10] << _SHIFTS).sum(-1), (value[..., :8].flip(-1) << _SHIFTS).sum(-1)
    return torch.stack((content, position, other), -1)


def attended(mask: Any, count: int, told: torch.Tensor) -> list[list[list[int]]]:
    """[row][query] what scaled dot product attention reads with this mask, as transformers calls it.

    Without a mask a single query reads all, and several are causal from the first key on. Raises `ValueError` for a
    mask of another length than the keys, which cannot be multiplied.
    """
    rows, places, _ = told.shape
    if mask is None:
        causal = torch.ones((count, places), dtype=torch.bool).tril() if count > 1 else torch.ones((1, places)) > 0
        mask = causal.expand(rows, 1, count, places)
    if mask.shape[-1] != places or mask.shape[0] != rows:
        raise ValueError(f"the mask is for {mask.shape[0]} x {mask.shape[-1]} keys, and there are {rows} x {places}")
    return [[told[r][mask[r, 0, j]].flatten().tolist() for j in range(count)] for r in range(rows)]
