"""The names that plugins import."""

from __future__ import annotations

import subprocess
import sys

import pytest

import sagactl


def test_public_names_are_sorted_and_exist() -> None:
    """`sagactl.__all__` is exact: each name is there, in order."""
    assert sagactl.__all__ == sorted(sagactl.__all__)
    for name in sagactl.__all__:
        assert getattr(sagactl, name) is not None
        assert name in dir(sagactl)


def test_unknown_name_is_an_attribute_error() -> None:
    """A name that isn't public is missing, as in any module."""
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = sagactl.nonsense  # type: ignore[attr-defined]  # the mistake itself


def test_importing_sagactl_imports_nothing_else() -> None:
    """`import sagactl` costs nothing: no other module of ours is imported with it."""
    script = "import sys, sagactl; print([m for m in sys.modules if m.startswith('sagactl.')])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
