"""Real caches that are cut into blocks, kept in a `BlockStore`, and made again of what it finds (B1-B7)."""
