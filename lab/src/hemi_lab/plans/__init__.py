"""Plans: TOML files that say which tests are made, and how."""
