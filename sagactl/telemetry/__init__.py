"""Runs as traces of OpenTelemetry: what the records say, as spans, sent to a collector beside the run."""
