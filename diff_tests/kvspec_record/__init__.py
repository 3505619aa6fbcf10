"""What runs inside an engine's own environment: the worker and its adapters. Standard library and the engine only."""
