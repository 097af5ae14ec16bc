"""Drivers: they make the load on a target and measure it."""
