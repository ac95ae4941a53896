"""How many secrets a saga may have, and what the loader takes them for (E19, F3, X3)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sagactl.spec.load import load_saga
from sagactl.spec.shape import SECRETS_MAX
from sagactl.written.problem import InvalidSagaError
from tests.spec.toolbox import SECRET, TOOLS, schema


def _load(count: int) -> None:
    names = [f"k{number}" for number in range(count)]
    env = ", ".join(f'{name}: "${{{{ secrets.{name} }}}}"' for name in names)
    head = f"saga: x\nsecrets: [{', '.join(names)}]\n"
    text = (
        f"{head}steps:\n  - id: a\n    tool: vault.lend\n    with: {{env: {{{env}}}}}\n    compensate: {{with: {{}}}}\n"
    )
    load_saga(text.encode(), file="x.yaml", tools=TOOLS)


def test_there_can_be_only_so_many_secrets() -> None:
    """X3: each is looked for in everything that tools give back, so their number is bounded."""
    _load(SECRETS_MAX)
    with pytest.raises(InvalidSagaError) as caught:
        _load(SECRETS_MAX + 1)
    assert caught.value.problems[0].code == "over-limit"


def test_a_secret_is_a_text() -> None:
    """F5: where a tool wants a number, a secret can't be one, and that is said before anything runs."""
    tools = dict(TOOLS)
    tools["mail.send"] = replace(TOOLS["mail.send"], arguments_schema=schema(to={**SECRET, "type": "integer"}))
    text = (
        'saga: x\nsecrets: [k]\nsteps:\n  - {id: a, tool: mail.send, with: {to: "${{ secrets.k }}"}, read_only: true}\n'
    )
    with pytest.raises(InvalidSagaError) as caught:
        load_saga(text.encode(), file="x.yaml", tools=tools)
    assert "wrong-argument" in {problem.code for problem in caught.value.problems}
