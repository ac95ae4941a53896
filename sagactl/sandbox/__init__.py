"""Make-believe remote systems on one SQLite file: what the shipped plugins call instead of the real ones."""
