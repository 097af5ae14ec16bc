"""A run's result: `result.json` and Parquet tables in one directory (docs/lab/results.md)."""
