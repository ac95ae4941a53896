"""Crashes and failures of every kind, tried on a saga and its tools before they happen by themselves."""
