"""What storage costs to own (docs/lab/tco.md)."""
