"""Runs one function over many tasks, on local processes or on a Ray cluster."""
