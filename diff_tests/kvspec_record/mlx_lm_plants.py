"""Faults that can be planted into mlx-lm's cache classes at run time, to see them found; the same for both releases."""

from mlx_lm.models import cache

from kvspec_record.planting import Plant

OF_ONE_ROW: dict[str, Plant] = {
    "kv=grow_by_one_step": Plant(
        cache.KVCache, "update_and_fetch", "n_steps = (self.step + keys.shape[2] - 1) // self.step", "n_steps = 1"),
    "kv=trim_one_less": Plant(cache.KVCache, "trim", "self.offset -= n", "self.offset -= max(n - 1, 0)"),
    "kv=quantize_from_the_beginning": Plant(
        cache.KVCache, "to_quantized", "quant_cache.offset = self.offset", "quant_cache.offset = 0"),
    "rotating=window_one_short": Plant(
        cache.RotatingKVCache, "_update_concat", "self._idx - self.max_size + 1", "self._idx - self.max_size + 2"),
    "rotating=ring_out_of_order": Plant(
        cache.RotatingKVCache, "_temporal_order", "elif self._idx < self.offset:", "elif False:"),
    "rotating=overwrite_the_kept": Plant(
        cache.RotatingKVCache, "_update_in_place", "self._idx = self.keep", "self._idx = 0"),
    "rotating=trim_the_wrapped": Plant(
        cache.RotatingKVCache, "is_trimmable", "self.offset < self.max_size", "True"),
    "rotating=mask_one_row_on": Plant(
        cache.RotatingKVCache, "make_mask", "min(self.max_size - 1, self.offset)", "min(self.max_size, self.offset)"),
    "quantized=trim_one_less": Plant(
        cache.QuantizedKVCache, "trim", "self.offset -= n", "self.offset -= max(n - 1, 0)"),
    "chunked=end_of_the_whole": Plant(
        cache.ChunkedKVCache, "maybe_trim_front", "self.start_position += ", "self.start_position -= "),
    "list=trim_the_first_only": Plant(
        cache.CacheList, "trim", "for c in self.caches:\n", "for c in self.caches[:1]:\n"),
}  # fmt: skip

OF_BATCHES: dict[str, Plant] = {
    "arrays=fold_a_padding_token": Plant(
        cache.ArraysCache, "make_mask", "pos < self.lengths[:, None]", "pos <= self.lengths[:, None]"),
    "arrays=chunks_do_not_count": Plant(cache.ArraysCache, "advance", "self.lengths -= N", "pass"),
    "arrays=merge_the_first_again": Plant(
        cache.ArraysCache, "merge", "cache[e][i : i + 1] = caches[i][e]", "cache[e][i : i + 1] = caches[0][e]"),
    "arrays=join_in_front": Plant(
        cache.ArraysCache, "extend", "mx.concatenate([a, b])", "mx.concatenate([b, a])"),
    "batch=padding_is_content": Plant(cache.BatchKVCache, "finalize", "self.left_padding += padding", "pass"),
    "batch=merge_without_padding": Plant(
        cache.BatchKVCache, "merge", "cache = cls(padding)", "cache = cls([0] * B)"),
    "batch=extract_the_padded_length": Plant(
        cache.BatchKVCache, "extract", "cache.offset = cache.keys.shape[2]", "cache.offset = self._idx"),
    "batch=filter_keeps_the_padding": Plant(
        cache.BatchKVCache, "filter", "self.left_padding -= min_left_pad", "pass"),
    "batch=join_without_padding": Plant(
        cache.BatchKVCache, "extend", "left_padding = c.left_padding + left", "left_padding = c.left_padding"),
    "batch_rotating=positions_of_the_window": Plant(
        cache.BatchRotatingKVCache, "merge", "cache.offset = mx.array(offsets)", "cache.offset = mx.array(lengths)"),
    "batch_rotating=padding_stays": Plant(
        cache.BatchRotatingKVCache, "_update_in_place", "self.left_padding -= S", "pass"),
    "batch_rotating=no_roll": Plant(
        cache.BatchRotatingKVCache, "finalize", "mx.maximum(0, self.offset - self._lengths)",
        "mx.zeros_like(self.offset)"),
    "batch_rotating=join_without_order": Plant(
        cache.BatchRotatingKVCache, "extend", "(self.rotated != other.rotated) or self._idx != other._idx", "False"),
    "list=extract_the_first_row": Plant(cache.CacheList, "extract", "c.extract(idx)", "c.extract(0)"),
    "list=finalize_the_first_only": Plant(
        cache.CacheList, "finalize", "for c in self.caches:", "for c in self.caches[:1]:"),
}  # fmt: skip

PLANTS: dict[str, Plant] = OF_ONE_ROW | OF_BATCHES
"""All of them, by name."""
