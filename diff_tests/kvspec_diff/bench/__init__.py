"""Benchmarks: what is compared with what, which ratio is the goal, and the reasons for goals that are missed."""
