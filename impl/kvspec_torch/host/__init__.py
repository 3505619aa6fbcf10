"""The CPU path: NumPy views of CPU tensors, every check always on, misuse raised at once."""
