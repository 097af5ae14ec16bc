"""Targets: what is measured, how it is recognised, and what it would lose."""
