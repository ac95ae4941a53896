"""A fresh project for each test, and servers that are started once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.plugins.project import Project
from tests.servers import aws, stripe


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Give a project with an empty sandbox."""
    return Project(tmp_path)


@pytest.fixture(scope="session")
def stripe_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[stripe.Stripe]:
    """Run the fake of Stripe."""
    with stripe.serving(tmp_path_factory.mktemp("stripe")) as server:
        yield server


@pytest.fixture(scope="session")
def aws_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[aws.Aws]:
    """Run the fake of AWS."""
    with aws.serving(tmp_path_factory.mktemp("aws")) as server:
        yield server
