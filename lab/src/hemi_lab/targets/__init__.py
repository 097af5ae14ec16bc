"""Targets: their names, their description, and the data that a run would destroy."""
