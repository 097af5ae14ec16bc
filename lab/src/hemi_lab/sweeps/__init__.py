"""Sweeps of simulations: many cases of one spec, with cached results (docs/lab/sweep.md)."""
