"""Python tools in an interpreter of their own: one process for each call, ended for sure."""
