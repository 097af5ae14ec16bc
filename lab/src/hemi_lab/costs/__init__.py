"""Costs of storage ownership (docs/lab/tco.md)."""
