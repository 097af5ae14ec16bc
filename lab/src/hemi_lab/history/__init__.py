"""Results of one target over time (docs/lab/history.md)."""
