"""Mutation testing of the core: a soak that is made by hand, see `python -m tests.mutation --help`."""
