"""All systems that `sagas/onboarding-live.yaml` works on, started together, and what there is in them."""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx

from tests.servers import aws, stripe, tryton

T = TypeVar("T")

QUEUE = "welcome.fifo"


def _say_nothing(_: str) -> None:
    """Tell nobody."""


@dataclass(frozen=True)
class World:
    """What the systems hold of customers; taken from the systems themselves."""

    parties: tuple[str, ...]
    addresses: int
    orders: tuple[str, ...]
    """The state of each."""
    charges: tuple[tuple[int, int], ...]
    """What was taken with each, and how much of it was given back, in cents."""
    machines: tuple[str, ...]
    """The state of each."""
    messages: int

    @property
    def kept(self) -> int:
        """How much money was taken and not given back, in cents."""
        return sum(taken - given_back for taken, given_back in self.charges)

    @property
    def running(self) -> int:
        """How many machines run."""
        return sum(state in {"pending", "running"} for state in self.machines)


@dataclass(frozen=True)
class Systems:
    """Where the systems are, and the keys to them: what the plugins read from their environment."""

    environ: Mapping[str, str]

    @classmethod
    def of_environment(cls) -> Systems:
        """Return the systems that this process's own environment names."""
        return cls(os.environ)

    def look(self) -> World:
        """Return what there is, in every system."""
        erp = self._erp()
        everyone = erp.find("party.party", [["code", "like", "sagactl-%"], _HIDDEN_TOO], ["name"])
        wanted = ["party.code", "like", "sagactl-%"]
        ec2, sqs = self._clients
        groups = ec2.describe_instances()["Reservations"]
        machines = [each for group in groups for each in group["Instances"]]
        url = sqs.get_queue_url(QueueName=QUEUE)["QueueUrl"]
        messages = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        return World(
            parties=tuple(sorted(each["name"] for each in everyone)),
            addresses=len(erp.find("party.address", [wanted])),
            orders=tuple(each["state"] for each in erp.find("sale.sale", [wanted], ["state"])),
            charges=self.read_charges(),
            machines=tuple(sorted(each["State"]["Name"] for each in machines)),
            messages=int(messages["ApproximateNumberOfMessages"]),
        )

    def read_charges(self) -> tuple[tuple[int, int], ...]:
        """Return what was taken with each charge, and how much of it was given back, in cents."""
        found = self._ask_stripe("/v1/charges?limit=100")["data"]
        return tuple((each["amount"], each["amount_refunded"]) for each in found if each["paid"])

    @functools.cached_property
    def _clients(self) -> tuple[Any, Any]:
        import botocore.session

        session = botocore.session.get_session()
        ec2, sqs = (
            session.create_client(
                service,
                region_name=aws.REGION,
                endpoint_url=self.environ["AWS_ENDPOINT_URL"],
                aws_access_key_id=self.environ["AWS_ACCESS_KEY_ID"],
                aws_secret_access_key=self.environ["AWS_SECRET_ACCESS_KEY"],
            )
            for service in ("ec2", "sqs")
        )
        return ec2, sqs

    def make_queue(self) -> None:
        """Make the queue that a welcome goes to."""
        self._clients[1].create_queue(QueueName=QUEUE, Attributes={"FifoQueue": "true"})

    def _erp(self) -> tryton.Tryton:
        url, key = self.environ["TRYTON_URL"], self.environ["SAGACTL_SECRET_TRYTON_KEY"]
        return tryton.Tryton(url, key, urlsplit(url).port or 443, Path())

    def _ask_stripe(self, path: str) -> Any:
        key = self.environ["SAGACTL_SECRET_STRIPE_API_KEY"]
        answer = httpx.get(f"{self.environ['STRIPE_API_BASE']}{path}", headers={"Authorization": f"Bearer {key}"})
        assert answer.status_code == 200, answer.text
        return answer.json()


_HIDDEN_TOO = ["active", "in", [True, False]]


@contextlib.contextmanager
def serving_all(folder: Path, say: Callable[[str], None] = _say_nothing) -> Iterator[Systems]:
    """Run all three until the block ends, with their data in *folder*; they start side by side."""
    tryton.find_set_up(say)
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(3) as pool:

        def start(name: str, way: Callable[[Path], AbstractContextManager[T]]) -> Future[T]:
            return pool.submit(lambda: stack.enter_context(way(_make(folder / name))))

        started = start("stripe", stripe.serving), start("aws", aws.serving), start("tryton", tryton.serving)
        stripes, clouds, erp = started[0].result(), started[1].result(), started[2].result()
        systems = Systems(
            {
                "TRYTON_URL": erp.url,
                "SAGACTL_SECRET_TRYTON_KEY": erp.key,
                "STRIPE_API_BASE": stripes.url,
                "SAGACTL_SECRET_STRIPE_API_KEY": stripe.KEY,
                **aws.ENVIRON,
                "AWS_ENDPOINT_URL": clouds.url,
            }
        )
        systems.make_queue()
        yield systems


def _make(folder: Path) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def write_exports(environ: Mapping[str, str]) -> str:
    """Return the lines by which a shell gets the variables."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in environ.items())
