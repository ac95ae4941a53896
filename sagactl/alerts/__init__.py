"""Telling people and programs: alerts from the outbox to channels, and events of runs to a target."""
