"""What may be said of measured numbers, and how surely."""
