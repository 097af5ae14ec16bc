"""A run's result: `result.json` and Parquet tables in one folder (docs/lab/results.md)."""
