"""Programs over the cache classes of engines, held against what attention would read of a cold prefill."""
