"""The command line: one command a file, views that turn state into text."""
