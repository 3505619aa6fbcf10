"""What a store of blocks is made of: files and their frames, the lock, the writer, who looks after a folder."""
