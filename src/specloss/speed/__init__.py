"""Benchmarks of speed: decoding, and what the workflow adds."""
