"""Ways to load a saga that is written in a test."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from sagactl.core.saga import Saga
from sagactl.spec.load import Loaded, load_saga
from sagactl.written.problem import InvalidSagaError, Problem
from tests.spec.toolbox import TOOLS

Load: TypeAlias = Callable[[str | bytes], Loaded]
Refuse: TypeAlias = Callable[[str | bytes], list[Problem]]
LoadSteps: TypeAlias = Callable[[str], Saga]

HEAD = """\
saga: example
defaults: {start_to_close_timeout: 30s}
input:
  type: object
  required: [email, amount, vip, names]
  properties:
    email: {type: string}
    amount: {type: integer}
    vip: {type: boolean}
    names: {type: array, items: {type: string}}
steps:
"""


def load_text(text: str | bytes) -> Loaded:
    """Load a saga with the tools of the tests."""
    return load_saga(text, file="test.yaml", tools=TOOLS)


@pytest.fixture
def load() -> Load:
    """Load a saga that must be right."""
    return load_text


@pytest.fixture
def load_steps() -> LoadSteps:
    """Load steps under a head with an input."""
    return lambda steps: load_text(HEAD + steps).saga


@pytest.fixture
def refuse() -> Refuse:
    """Load a saga that must be wrong, and return its errors."""

    def _refuse(text: str | bytes) -> list[Problem]:
        with pytest.raises(InvalidSagaError) as caught:
            load_text(text)
        return [problem for problem in caught.value.problems if problem.severity == "error"]

    return _refuse


@pytest.fixture
def refuse_steps(refuse: Refuse) -> Refuse:
    """Load steps that must be wrong, under a head with an input."""
    return lambda steps: refuse(HEAD + str(steps))
