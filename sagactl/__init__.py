"""Run distributed sagas for AI-agent tool workflows, with a write-ahead log and exact rollback."""

__version__ = "0.1.0"
