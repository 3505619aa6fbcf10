"""Differential tests of KV-cache memory: programs, subjects, one comparison, and the specification as judge."""
