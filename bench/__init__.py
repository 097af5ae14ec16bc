"""Paired benchmarks of hemi and its peers. `python -m bench --help`."""
