"""Faults that can be planted into the caches of transformers at run time, to see them found."""

from transformers import cache_utils as utils

from kvspec_record.planting import Plant

PLANTS: dict[str, Plant] = {
    "dynamic=crop_one_too_many": Plant(
        utils.DynamicLayer, "crop", "self.keys[..., : -abs(tokens_to_remove), :]",
        "self.keys[..., : -abs(tokens_to_remove) - 1, :]"),
    "dynamic=crop_keys_only": Plant(
        utils.DynamicLayer, "crop", "self.values = self.values[..., : -abs(tokens_to_remove), :]",
        "self.values = self.values[..., abs(tokens_to_remove) :, :]"),
    "dynamic=repeat_in_rounds": Plant(
        utils.DynamicLayer, "batch_repeat_interleave", "self.keys.repeat_interleave(repeats, dim=0)",
        "self.keys.repeat(repeats, 1, 1, 1)"),
    "dynamic=select_values_in_order": Plant(
        utils.DynamicLayer, "batch_select_indices", "self.values[indices, ...]",
        "self.values[torch.arange(len(indices)), ...]"),
    "reorder=keys_only": Plant(
        utils.CacheLayerMixin, "reorder_cache", "self.values = self.values.index_select(0, "
        "beam_idx.to(self.values.device))", "pass"),
    "reset=keep_length": Plant(
        utils.CacheLayerMixin, "reset", "self.cumulative_length.zero_()", "pass"),
    "sliding=one_too_few": Plant(
        utils.DynamicSlidingWindowLayer, "update", "self.keys = full_key_states[:, :, -self.sliding_window + 1 :, :]",
        "self.keys = full_key_states[:, :, -self.sliding_window + 2 :, :]"),
    "sliding=offset_stays": Plant(
        utils.DynamicSlidingWindowLayer, "get_mask_sizes",
        "kv_offset = max(self.cumulative_length - self.sliding_window + 1, 0)",
        "kv_offset = max(self.cumulative_length - self.sliding_window, 0)"),
    "sliding=crop_keeps_length": Plant(
        utils.DynamicSlidingWindowLayer, "crop",
        "self.cumulative_length = self.cumulative_length - tokens_to_remove", "pass"),
    "sliding=crop_the_oldest": Plant(
        utils.DynamicSlidingWindowLayer, "crop",
        "self.keys = self.keys[:, :, -self.sliding_window + 1 - tokens_to_remove : -tokens_to_remove, :]",
        "self.keys = self.keys[:, :, -self.sliding_window + 1 :, :]"),
    "static=write_from_the_start": Plant(
        utils.StaticLayer, "update", "torch.arange(kv_length, device=self.device) + self.cumulative_length",
        "torch.arange(kv_length, device=self.device)"),
    "static=crop_twice": Plant(
        utils.StaticLayer, "crop", "self.cumulative_length.sub_(abs(tokens_to_remove))",
        "self.cumulative_length.sub_(2 * abs(tokens_to_remove))"),
    "static_sliding=no_roll": Plant(
        utils.StaticSlidingWindowLayer, "update", "new_keys = self.keys.roll(-1, dims=-2)", "new_keys = self.keys"),
    "static_sliding=keep_the_first": Plant(
        utils.StaticSlidingWindowLayer, "update", "full_value_states[:, :, -self.max_cache_len :, :]",
        "full_value_states[:, :, : self.max_cache_len, :]"),
    "static_sliding=length_stays_on_reset": Plant(
        utils.StaticSlidingWindowLayer, "reset", "self.cumulative_length_int = 0", "pass"),
    "quantized=forget_the_residual": Plant(
        utils.QuantizedLayer, "update", "self.keys = torch.cat([self.keys, key_states], dim=-2)",
        "self.keys = key_states"),
    "quantized=reorder_twice": Plant(
        utils.QuantizedLayer, "update", "self._pending_beam_idx = None", "pass"),
    "quantized=reorder_keys_only": Plant(
        utils.QuantizedLayer, "_apply_pending_reorder", "values.index_select(0, beam_idx)", "values"),
    "fp8=reorder_keys_only": Plant(
        utils.Fp8QuantizedLayer, "reorder_cache", "quantized_values.index_select(0, beam_idx)", "quantized_values"),
    "indexed=crop_keeps_keys": Plant(
        utils.DynamicIndexedLayer, "crop", "self.indexer_keys = self.indexer_keys[:, : -abs(tokens_to_remove), :]",
        "pass"),
    "conv=keep_the_first": Plant(
        utils.LinearAttentionLayer, "update_conv_state", "full_conv_states[..., -self.conv_kernel_size[state_idx] :]",
        "full_conv_states[..., : self.conv_kernel_size[state_idx]]"),
    "conv=no_padding_shift": Plant(
        utils.LinearAttentionLayer, "update_conv_state", "(padding_length, 0)", "(0, padding_length)"),
    "state=the_first_entry": Plant(
        utils.LinearAttentionLayer, "update_recurrent_state", "self.recurrent_states[state_idx].copy_(",
        "self.recurrent_states[0].copy_("),
    "state=not_reordered": Plant(
        utils.LinearAttentionCacheLayerMixin, "reorder_cache",
        "self.recurrent_states[i] = self.recurrent_states[i].index_select(0, beam_idx.to(self.device))", "pass"),
    "hybrid=crop_the_convolution_only": Plant(
        utils.LinearAttentionAndFullAttentionLayer, "crop", "DynamicLayer.crop(self, tokens_to_remove)", "pass"),
}  # fmt: skip
