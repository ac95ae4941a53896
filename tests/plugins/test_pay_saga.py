"""A saga over Stripe and AWS, by the command line: killed in the charge, answers lost, rolled back, without a key."""

from __future__ import annotations

import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cli.project import Project
from tests.plugins.project import PLUGINS
from tests.plugins.vendors import wait_until
from tests.servers import aws, stripe

SAGA = """
saga: tenant
input:
  type: object
  required: [email, bucket, queue]
  properties:
    email: {type: string}
    bucket: {type: string}
    queue: {type: string}
    card: {type: string, default: tok_visa}
    size: {type: string, default: t3.micro}
defaults:
  start_to_close_timeout: 60s
  retry: {initial_interval: 10ms, max_interval: 50ms}
steps:
  - id: customer
    tool: stripe.create_customer
    with: {email: "${{ input.email }}"}
  - id: deposit
    tool: stripe.charge
    with: {amount: 4900, currency: eur, source: "${{ input.card }}"}
  - id: config
    tool: aws.put_object
    with:
      region: eu-central-1
      bucket: "${{ input.bucket }}"
      key: "tenants/${{ input.email }}.txt"
      text: "${{ steps.deposit.output.charge_id }}"
  - id: machine
    tool: aws.run_instance
    with: {region: eu-central-1, image_id: ami-0123456789abcdef0, instance_type: "${{ input.size }}"}
  - id: told
    pivot: true
    tool: aws.send_message
    with: {region: eu-central-1, queue_url: "${{ input.queue }}", body: "${{ steps.machine.output.instance_id }}"}
output:
  charge_id: "${{ steps.deposit.output.charge_id }}"
"""


@dataclass
class Tenancy:
    """A project with the saga, and what it has done to the world."""

    project: Project
    stripe: stripe.Stripe
    aws: aws.Aws
    email: str
    bucket: str
    queue: str

    def arguments(self, **more: str) -> list[str]:
        """Return what starts the saga."""
        given = {"email": self.email, "bucket": self.bucket, "queue": self.queue, **more}
        return ["run", "tenant", "-q", *(part for each in given.items() for part in ("-i", "=".join(each)))]

    def world(self, run: dict[str, Any]) -> dict[str, Any]:
        """Return what Stripe and AWS have of the run, as they see it."""
        clients = {service: self.aws.client(service) for service in ("ec2", "s3", "sqs")}
        try:
            wanted = [{"Name": "tag:sagactl:key", "Values": [f"{run['id']}/machine/action"]}]
            wanted.append({"Name": "instance-state-name", "Values": ["pending", "running"]})
            found = clients["ec2"].describe_instances(Filters=wanted)["Reservations"]
            listed = clients["s3"].list_objects_v2(Bucket=self.bucket).get("Contents", [])
            messages = clients["sqs"].receive_message(QueueUrl=self.queue, VisibilityTimeout=0).get("Messages", [])
        finally:
            for each in clients.values():
                each.close()
        return {
            "customers": len(self.stripe.customers(self.email)),
            "balance": self.stripe.balance(f"{run['id']}/deposit/action"),
            "objects": len(listed),
            "machines": sum(len(group["Instances"]) for group in found),
            "messages": len(messages),
        }

    def all_bytes(self) -> bytes:
        """Return all that sagactl has written."""
        return b"".join(file.read_bytes() for file in (self.project.path / ".sagactl").rglob("*") if file.is_file())


ALL = {"customers": 1, "balance": [4_900], "objects": 1, "machines": 1, "messages": 1}
NOTHING = {"customers": 0, "balance": [0], "objects": 0, "machines": 0, "messages": 0}


@pytest.fixture
def tenancy(tmp_path: Path, stripe_server: stripe.Stripe, aws_server: aws.Aws) -> Tenancy:
    """Give a project, a bucket and a queue of its own."""
    (tmp_path / "plugins").mkdir()
    for name in ("_reach.py", "_stripe.py", "stripe.py", "_aws.py", "aws.py"):
        shutil.copy(PLUGINS / name, tmp_path / "plugins")
    (tmp_path / "sagas").mkdir()
    (tmp_path / "sagas" / "tenant.yaml").write_text(SAGA)
    number = uuid.uuid4().hex[:12]
    s3, sqs = aws_server.client("s3"), aws_server.client("sqs")
    s3.create_bucket(Bucket=f"tenants-{number}", CreateBucketConfiguration={"LocationConstraint": aws.REGION})
    queue = sqs.create_queue(QueueName=f"{number}.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    s3.close()
    sqs.close()
    environ = {
        **aws_server.environ,
        "STRIPE_API_BASE": stripe_server.between.url,
        "SAGACTL_SECRET_STRIPE_API_KEY": stripe.KEY,
    }
    email = f"{number}@example.com"
    return Tenancy(Project(tmp_path, environ), stripe_server, aws_server, email, f"tenants-{number}", queue)


def test_all_of_it_happens_once_and_no_key_is_written(tenancy: Tenancy) -> None:
    """E8, E19: without Stripe's key the run waits and asks nobody; with it each effect comes once; no key shows."""
    del tenancy.project.environ["SAGACTL_SECRET_STRIPE_API_KEY"]
    before = len(tenancy.stripe.between.seen)
    waiting = tenancy.project.run(*tenancy.arguments(), "-o", "json")
    assert (waiting.code, waiting.json["run"]["cause"]) == (12, "missing_secret"), waiting.err
    assert len(tenancy.stripe.between.seen) == before
    tenancy.project.environ["SAGACTL_SECRET_STRIPE_API_KEY"] = stripe.KEY
    done = tenancy.project.run("resume", "--all", "-o", "json")
    assert done.code == 0, done.err
    shown = tenancy.project.run("show", "-o", "json")
    assert tenancy.world(shown.json["run"]) == ALL
    written = tenancy.all_bytes() + (done.out + done.err + shown.out).encode()
    assert stripe.KEY.encode() not in written
    assert aws.ENVIRON["AWS_SECRET_ACCESS_KEY"].encode() not in written


def kill_while(tenancy: Tenancy, what: str) -> None:
    """Run the saga, and kill its process while Stripe has a request, which then lands all the same."""
    held = tenancy.stripe.between.hold(what)
    process = tenancy.project.start(*tenancy.arguments())
    wait_until(lambda: tenancy.stripe.between.is_spent or process.poll() is not None)
    assert process.poll() is None
    process.kill()
    process.communicate()
    held.set()


def test_killed_in_the_charge_it_is_charged_once(tenancy: Tenancy) -> None:
    """E4, E6, E17: the process dies while Stripe has the request; the charge lands later, and the resume finds it."""
    kill_while(tenancy, "POST /v1/charges")
    resumed = tenancy.project.run("resume", "--all", "-q", "-o", "json")
    assert resumed.code == 0, resumed.err
    run = tenancy.project.latest()
    assert run["status"] == "succeeded"
    assert tenancy.world(run) == ALL


def test_killed_in_the_refund_it_is_refunded_once(tenancy: Tenancy) -> None:
    """E12, E17: the same key again, so the second refund is the first."""
    tenancy.aws.between.reply("RunInstances", aws.fail_ec2(400, "VcpuLimitExceeded", "too many"))
    kill_while(tenancy, "POST /v1/refunds")
    resumed = tenancy.project.run("resume", "--all", "-q", "-o", "json")
    assert resumed.code == 10, resumed.err
    run = tenancy.project.latest()
    assert run["not_undone"] == []
    assert tenancy.world(run) == NOTHING
    (charge,) = tenancy.stripe.charges(f"{run['id']}/deposit/action")
    assert len(tenancy.stripe.ask("/v1/refunds", charge=charge["id"])["data"]) == 1


def test_lost_answers_everywhere_change_nothing(tenancy: Tenancy) -> None:
    """E4, E6: each answer lost once, after the effect: probed, or repeated with its key."""
    for what in ("POST /v1/customers", "POST /v1/charges"):
        tenancy.stripe.between.lose(what)
    for what in ("PUT ", "RunInstances"):
        tenancy.aws.between.lose(what)
    done = tenancy.project.run(*tenancy.arguments(), "-o", "json")
    assert done.code == 0, done.err
    assert tenancy.stripe.between.is_spent
    assert tenancy.aws.between.is_spent
    assert tenancy.world(done.json["run"]) == ALL


def test_a_machine_that_cannot_be_had_gives_the_money_back(tenancy: Tenancy) -> None:
    """E11, E12: refunded, the object and the customer gone; the answer to an undo is lost on the way."""
    tenancy.aws.between.reply("RunInstances", aws.fail_ec2(400, "VcpuLimitExceeded", "too many"))
    tenancy.stripe.between.lose("POST /v1/refunds")
    done = tenancy.project.run(*tenancy.arguments(), "-o", "json")
    assert done.code == 10, done.err
    assert tenancy.aws.between.is_spent
    assert tenancy.stripe.between.is_spent
    assert tenancy.world(done.json["run"]) == NOTHING
