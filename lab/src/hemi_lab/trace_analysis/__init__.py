"""Analyses request streams: large traces, read in parts and merged (docs/lab/traces.md)."""
