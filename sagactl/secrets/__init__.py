"""Secrets: where their values come from, and how they are kept out of everything that is stored or shown (E19)."""
