"""Drivers: what makes the load on a target and measures it."""
