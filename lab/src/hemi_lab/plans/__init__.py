"""Plans: TOML files that define tests and their order."""
