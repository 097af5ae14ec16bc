"""Sweeps of simulations: many cases of one spec, kept by what they are (docs/lab/sweep.md)."""
