"""What the fuzzing tests share."""

from tests.fuzz.rounds import fuzz

__all__ = ["fuzz"]
