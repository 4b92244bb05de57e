"""Benchmarks, each shown beside the limit that the machine sets."""
