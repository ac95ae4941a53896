"""State and records as lines of text, purely."""
