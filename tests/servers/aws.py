"""A fake of AWS that others wrote: moto, in a process of its own, on this machine only; it isn't the real AWS.

It honours no client token of EC2, gives a message that it had before a new id, and shows a tag at once.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from tests.servers.between import Between, Reply, standing_before
from tests.servers.start import find_free_port, find_python_program, is_listening, running

REGION = "eu-central-1"
IMAGE = "ami-0123456789abcdef0"
ENVIRON = {
    "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    "AWS_SETTLE_SECONDS": "0",
}


@dataclass
class Aws:
    """The fake: asked at `between`, where answers can be lost; `url` is what stands behind."""

    url: str
    between: Between
    asked: list[dict[str, str]]
    """What EC2 and SNS were asked, in order: the action with its parameters."""

    @property
    def environ(self) -> dict[str, str]:
        """The variables with which the plugin talks to the fake."""
        return {**ENVIRON, "AWS_ENDPOINT_URL": self.between.url}

    def client(self, service: str) -> Any:
        """Return a client of the library that talks to the fake, past everything that may get lost."""
        import botocore.session

        return botocore.session.get_session().create_client(
            service,
            region_name=REGION,
            endpoint_url=self.url,
            aws_access_key_id=ENVIRON["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=ENVIRON["AWS_SECRET_ACCESS_KEY"],
        )


def fail_ec2(status: int, code: str, message: str) -> Reply:
    """Return an error as EC2 words one."""
    error = f"<Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors>"
    return Reply(status, f"<Response>{error}<RequestID>r</RequestID></Response>".encode(), {"Content-Type": "text/xml"})


def fail_s3(status: int, code: str, message: str) -> Reply:
    """Return an error as S3 words one."""
    body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    return Reply(status, body.encode(), {"Content-Type": "application/xml"})


def fail_sqs(status: int, code: str, message: str) -> Reply:
    """Return an error as SQS words one."""
    body = {"__type": f"com.amazonaws.sqs#{code}", "message": message}
    return Reply(status, json.dumps(body).encode(), {"Content-Type": "application/x-amz-json-1.0"})


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Aws]:
    """Run the fake until the block ends."""
    port = find_free_port()
    command = [find_python_program("moto_server"), "-H", "127.0.0.1", "-p", str(port)]
    with running(command, is_ready=lambda: is_listening(port), log=folder / "moto.log"):
        url = f"http://127.0.0.1:{port}"
        asked: list[dict[str, str]] = []

        def name_action(body: bytes) -> str:
            if not body.startswith(b"Action="):
                return ""
            asked.append(dict(parse_qsl(body.decode())))
            return asked[-1]["Action"]

        with standing_before(url, naming=name_action) as between:
            yield Aws(url, between, asked)
