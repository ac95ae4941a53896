"""Carrying out what the core decides: the driver loop and where calls run."""
