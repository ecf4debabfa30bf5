"""Benchmarks of the bars in docs/performance.md; each compares within one run."""
