"""Benchmarks, each beside the machine's own limit."""
