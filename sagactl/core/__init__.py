"""The pure core: what a saga means and what comes next. No clock, no randomness, no I/O."""
