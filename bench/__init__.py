"""Paired benchmarks of hemi against its peers. `python -m bench --help`."""
