"""Comparisons of targets by repeated runs (docs/lab/compare.md)."""
