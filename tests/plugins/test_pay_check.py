"""`sagactl tools check` on the plugins `stripe` and `aws`: the golden rules, on the fakes."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from typing import Any

from tests.cli.project import ROOT, Project
from tests.servers import aws, stripe


def check(folder: Path, environ: dict[str, str], plugin: str, *words: str) -> dict[tuple[str, str], str]:
    """Check a plugin, which must end well; return the verdicts that are no `holds`."""
    shutil.copytree(ROOT / "plugins", folder / "plugins", ignore=shutil.ignore_patterns("__pycache__"))
    result = Project(folder, environ).run(
        *("tools", "check", plugin, "--allow-unsafe", f"{plugin}.*", *words, "--strict", "-q", "-o", "json"),
        timeout=600,
    )
    assert result.code == 0, result.out
    assert stripe.KEY not in result.out + result.err
    tools: list[dict[str, Any]] = result.json["tools"]
    found = {(tool["name"], each["rule"]): each["verdict"] for tool in tools for each in tool["rules"]}
    assert len(found) >= 30
    return {place: verdict for place, verdict in found.items() if verdict != "holds"}


def test_stripe_keeps_the_rules(tmp_path: Path, stripe_server: stripe.Stripe) -> None:
    """Every rule that can be tried holds; two of the undos don't claim to refuse what comes late, and one does."""
    environ = {"STRIPE_API_BASE": stripe_server.between.url, "SAGACTL_SECRET_STRIPE_API_KEY": stripe.KEY}
    assert check(tmp_path, environ, "stripe") == {
        ("stripe.charge", "late"): "not_promised",
        ("stripe.create_customer", "late"): "not_promised",
    }


def test_aws_keeps_the_rules(tmp_path: Path, aws_server: aws.Aws) -> None:
    """Every rule that can be tried holds; that the fake honours no client token is documented in the check file."""
    name = f"check-{uuid.uuid4().hex[:12]}"
    inputs = {"bucket": name, **_make_places(aws_server, name)}
    words = [part for each in inputs.items() for part in ("-i", "=".join(each))]
    found = check(tmp_path, aws_server.environ, "aws", *words)
    for name in ("aws.run_instance", "aws.put_object"):  # excused, or held by chance: the fake has no token and no lock
        assert found.pop((name, "at-once"), "excused") == "excused"
    assert found == {
        ("aws.run_instance", "late"): "not_promised",
        ("aws.put_object", "late"): "not_promised",
    }


def _make_places(server: aws.Aws, name: str) -> dict[str, str]:
    """Make a bucket with versions, and a FIFO topic with a FIFO queue behind it."""
    s3, sqs, sns = (server.client(service) for service in ("s3", "sqs", "sns"))
    s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": aws.REGION})
    s3.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    queue = sqs.create_queue(QueueName=f"{name}.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    topic = sns.create_topic(Name=f"{name}.fifo", Attributes={"FifoTopic": "true"})["TopicArn"]
    arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
    for client in (s3, sqs, sns):
        client.close()
    return {"queue_url": queue, "topic_arn": topic}
