"""The write-ahead log: a protocol and its implementations."""
