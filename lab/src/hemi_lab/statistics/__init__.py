"""Statistics of measured values, and their uncertainty."""
