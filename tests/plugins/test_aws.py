"""The plugin `aws` on moto, a fake of AWS that honours no client token; it isn't the real AWS."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from sagactl.core.canonical import Json
from tests.plugins.vendors import REGISTRY, Deed, wait_until, word
from tests.servers import aws
from tests.servers.between import Reply
from tests.servers.start import DEAD_PORT

Clients = dict[str, Any]


@pytest.fixture(scope="module")
def fake(aws_server: aws.Aws) -> Iterator[aws.Aws]:
    """Point the plugin at the fake."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in aws_server.environ.items():
            patch.setenv(name, value)
        yield aws_server


@pytest.fixture(scope="module")
def clients(fake: aws.Aws) -> Iterator[Clients]:
    """Give what looks into the fake from behind."""
    made = {service: fake.client(service) for service in ("ec2", "s3", "sqs", "sns")}
    yield made
    for each in made.values():
        each.close()


def deed(tool: str, **arguments: Json) -> Deed:
    """Return an action in the region of the fake."""
    return Deed(tool, {"region": aws.REGION, **arguments})


starting = partial(deed, "aws.run_instance", image_id=aws.IMAGE, instance_type="t3.micro", name="web")


def states(clients: Clients, key: str) -> list[str]:
    """Return the states of the machines of an action."""
    found = clients["ec2"].describe_instances(Filters=[{"Name": "tag:sagactl:key", "Values": [key]}])
    return [each["State"]["Name"] for group in found["Reservations"] for each in group["Instances"]]


def in_region(**arguments: Json) -> dict[str, Json]:
    """Return the arguments of an undo."""
    return {"region": aws.REGION, **arguments}


# Machines


def test_the_same_key_twice_is_one_machine_and_the_same_answer(fake: aws.Aws, clients: Clients) -> None:
    """E8: found by its tag before another one is started, since tokens expire and this fake honours none."""
    machine = starting()
    first = machine.done()
    assert machine.act(attempt=2).output == first
    assert machine.find() == ("done", first)
    assert states(clients, machine.key) == ["running"]


def test_a_machine_is_terminated_once(fake: aws.Aws, clients: Clients) -> None:
    """E12: the second undo finds it terminated, and AWS forgets it later; both are successes."""
    machine = starting()
    undo = in_region(instance_id=machine.done()["instance_id"])
    assert machine.undone(undo) == {"status": "terminated"}
    assert machine.undone(undo) == machine.undone(in_region()) == {"status": "already_gone"}
    assert machine.undone(in_region(instance_id="i-0123456789abcdef0")) == {"status": "already_gone"}
    assert states(clients, machine.key) == ["terminated"]
    assert machine.find() == ("not_done", None)


def test_the_undo_of_a_machine_that_never_was_says_so(fake: aws.Aws) -> None:
    """E7: null-safe."""
    machine = starting()
    assert machine.find() == ("not_done", None)
    assert machine.undone(in_region()) == {"status": "already_gone"}


def test_a_machine_whose_answer_was_lost_is_found_by_its_tag(fake: aws.Aws, clients: Clients) -> None:
    """E4, E6, E7: in doubt; the probe, another try and the undo find it."""
    machine = starting()
    fake.between.lose("RunInstances")
    assert word(machine.act()) == ("unknown", "ConnectionClosedError")
    assert states(clients, machine.key) == ["running"]
    state, output = machine.find()
    assert (state, machine.act(attempt=2).output) == ("done", output)
    assert machine.undone(in_region()) == {"status": "terminated"}


def test_a_start_after_its_undo_is_refused_while_the_machine_can_be_seen(fake: aws.Aws, clients: Clients) -> None:
    """E9: a terminated machine with the key is a tombstone for an hour; after that there is none."""
    machine = starting()
    machine.done()
    machine.undone(in_region())
    assert word(machine.act()) == ("rejected", "instance_terminated")
    assert states(clients, machine.key) == ["terminated"]


def test_a_start_that_lands_after_its_undo_is_found(fake: aws.Aws, clients: Clients) -> None:
    """E9: where the undo found nothing there is no tombstone: the plugin doesn't claim to be late-safe."""
    machine = starting()
    held = fake.between.hold("RunInstances")
    late = threading.Thread(target=machine.act)
    late.start()
    wait_until(lambda: fake.between.is_spent)
    assert machine.undone(in_region()) == {"status": "already_gone"}
    held.set()
    late.join()
    assert machine.find()[0] == "done"
    assert machine.undone(in_region()) == {"status": "terminated"}


def test_what_is_seen_late_is_looked_for_again(
    fake: aws.Aws, clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E6, E7: AWS shows a machine a moment after it has started it."""
    monkeypatch.setenv("AWS_SETTLE_SECONDS", "10")
    machine = starting()
    first = machine.done()
    nothing = Reply(200, b"<DescribeInstancesResponse><reservationSet/></DescribeInstancesResponse>")
    fake.between.reply("DescribeInstances", nothing)
    assert machine.find() == ("done", first)
    gone = aws.fail_ec2(400, "InvalidInstanceID.NotFound", "The instance ID does not exist")
    fake.between.reply("TerminateInstances", gone)
    assert machine.undone(in_region(instance_id=first["instance_id"])) == {"status": "terminated"}
    assert fake.between.is_spent


def test_two_machines_with_one_key_are_for_a_person_to_see_and_both_terminated(fake: aws.Aws, clients: Clients) -> None:
    """E6: two calls at once, before either is seen; AWS has the client token against that, the fake hasn't."""
    machine = starting()
    output = machine.done()
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "sagactl:key", "Value": machine.key}]}]
    clients["ec2"].run_instances(
        ImageId=aws.IMAGE, InstanceType="t3.micro", MinCount=1, MaxCount=1, TagSpecifications=tags
    )
    state, why = machine.find()
    assert (state, "2 machines" in str(why)) == ("cannot_tell", True)
    assert machine.undone(in_region(instance_id=output["instance_id"])) == {"status": "terminated"}
    assert states(clients, machine.key) == ["terminated", "terminated"]


def test_every_request_carries_the_token_and_the_tag(fake: aws.Aws) -> None:
    """E8: for the real AWS, which honours the token: the same in every try, other for another operation."""
    one, other = starting(), starting()
    before = len(fake.asked)
    fake.between.reply("RunInstances", aws.fail_ec2(503, "RequestLimitExceeded", "slow down"))
    one.act()
    one.done()
    other.done()
    tokens = [each["ClientToken"] for each in fake.asked[before:] if each["Action"] == "RunInstances"]
    assert tokens[0] == tokens[1] != tokens[2]
    assert all(len(token) == 64 for token in tokens)


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (aws.fail_ec2(503, "RequestLimitExceeded", "slow down"), ("unavailable", "RequestLimitExceeded")),
        (
            aws.fail_ec2(500, "InsufficientInstanceCapacity", "none left"),
            ("unavailable", "InsufficientInstanceCapacity"),
        ),
        (aws.fail_ec2(400, "InvalidAMIID.NotFound", "no such image"), ("rejected", "InvalidAMIID.NotFound")),
        (aws.fail_ec2(403, "UnauthorizedOperation", "you may not"), ("rejected", "UnauthorizedOperation")),
        (aws.fail_ec2(401, "AuthFailure", "who are you"), ("rejected", "AuthFailure")),
        (aws.fail_ec2(500, "InternalError", "sorry"), ("unknown", "ClientError")),
        (aws.fail_ec2(400, "IdempotentParameterMismatch", "another type"), ("unknown", "ClientError")),
        (Reply(200, b"<html>"), ("unknown", "ResponseParserError")),
    ],
    ids=lambda each: each[1] if isinstance(each, tuple) else "",
)
def test_errors_of_aws_are_outcomes(fake: aws.Aws, reply: Reply, outcome: tuple[str, str]) -> None:
    """E3: no effect where AWS says so for sure, else in doubt; the same for a key that was used for something else."""
    machine = starting()
    fake.between.reply("RunInstances", reply)
    assert word(machine.act()) == outcome
    assert fake.between.is_spent


def test_missing_rights_are_waited_out_by_an_undo(fake: aws.Aws) -> None:
    """E12: a rejected undo would be a dead letter at once."""
    machine = starting()
    undo = in_region(instance_id=machine.done()["instance_id"])
    fake.between.reply("TerminateInstances", aws.fail_ec2(403, "UnauthorizedOperation", "you may not"))
    assert word(machine.undo(undo)) == ("unavailable", "UnauthorizedOperation")
    assert machine.undone(undo) == {"status": "terminated"}


def test_without_keys_nothing_is_asked(fake: aws.Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    """E3: rejected, before any request."""
    ask: Any = REGISTRY.tool("aws.put_object").function
    sessions = ask.__globals__["ask"].__globals__["SESSIONS"]
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setattr(sessions, "_session", None)
    before = len(fake.between.seen)
    assert word(starting().act()) == ("rejected", "no_credentials")
    assert len(fake.between.seen) == before
    monkeypatch.undo()
    sessions._session = None


def test_an_aws_that_is_down_had_no_effect(fake: aws.Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    """E3: where no connection came about nothing was sent."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{DEAD_PORT}")
    assert word(starting().act()) == ("unavailable", "unreachable")


def test_an_aws_that_is_slow_is_given_up_before_the_call_ends(fake: aws.Aws, clients: Clients) -> None:
    """E14: no request takes longer than its call may; what became of it is found later."""
    machine = starting()
    machine.find()  # so that the library is read by then, which takes its time
    machine.seconds = 4.0
    held = fake.between.hold("RunInstances")
    began = time.monotonic()
    bounded = word(machine.act())
    assert bounded in {("unknown", "TimeoutError"), ("unknown", "ReadTimeoutError")}, "ours, or the library's"
    assert time.monotonic() - began < 60  # it is held back for 90
    held.set()
    machine.seconds = 20.0
    wait_until(lambda: machine.find()[0] == "done")
    assert states(clients, machine.key) == ["running"]


# Objects


@pytest.fixture(params=["versions", "plain"])
def bucket(request: pytest.FixtureRequest, clients: Clients) -> str:
    """Give a bucket of its own, with versions or without."""
    return make_bucket(clients, has_versions=request.param == "versions")


def make_bucket(clients: Clients, *, has_versions: bool, status: str = "Enabled") -> str:
    """Make a bucket."""
    name = f"bucket-{uuid.uuid4().hex[:12]}"
    clients["s3"].create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": aws.REGION})
    if has_versions:
        clients["s3"].put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": status})
    return name


def writing(bucket: str, text: str = "new", key: str = "a/b.txt") -> Deed:
    """Return the write of an object."""
    return deed("aws.put_object", bucket=bucket, key=key, text=text)


def place(write: Deed, **more: Json) -> dict[str, Json]:
    """Return the arguments of the undo of a write."""
    return in_region(bucket=write.arguments["bucket"], key=write.arguments["key"], **more)


def content(clients: Clients, bucket: str, key: str = "a/b.txt") -> list[str]:
    """Return all versions of an object, the latest first."""
    listed = clients["s3"].list_object_versions(Bucket=bucket, Prefix=key).get("Versions", [])
    ours = [each["VersionId"] for each in listed if each["Key"] == key]
    options = [{"VersionId": each} if each != "null" else {} for each in ours]
    return [clients["s3"].get_object(Bucket=bucket, Key=key, **each)["Body"].read().decode() for each in options]


def test_the_same_key_twice_is_one_write(fake: aws.Aws, clients: Clients, bucket: str) -> None:
    """E8: found by its metadata, so the second is the first."""
    write = writing(bucket)
    first = write.done()
    assert write.act(attempt=2).output == first
    assert write.find() == ("done", first)
    assert content(clients, bucket) == ["new"]


def test_a_write_is_undone_once(fake: aws.Aws, clients: Clients, bucket: str) -> None:
    """E12: with the output and without; and what never happened is said to be gone."""
    write = writing(bucket)
    assert write.undone(place(write)) == {"status": "already_gone"}
    output = write.done()
    assert write.undone(place(write, **output)) == {"status": "deleted"}
    assert write.undone(place(write, **output)) == write.undone(place(write)) == {"status": "already_gone"}
    assert content(clients, bucket) == []
    assert write.find() == ("not_done", None)


def test_a_write_whose_answer_was_lost_is_found(fake: aws.Aws, clients: Clients, bucket: str) -> None:
    """E4, E6, E7: in doubt; the probe, another try and the undo find it by its metadata."""
    write = writing(bucket)
    fake.between.lose("PUT ")
    assert word(write.act()) == ("unknown", "ConnectionClosedError")
    assert content(clients, bucket) == ["new"]
    state, output = write.find()
    assert (state, write.act(attempt=2).output) == ("done", output)
    assert write.undone(place(write)) == {"status": "deleted"}
    assert content(clients, bucket) == []


def test_the_undo_uncovers_the_former_version(fake: aws.Aws, clients: Clients) -> None:
    """E12: exactly our version goes, also from beneath one that somebody wrote since."""
    bucket = make_bucket(clients, has_versions=True)
    clients["s3"].put_object(Bucket=bucket, Key="a/b.txt", Body=b"former")
    write = writing(bucket)
    output = write.done()
    assert content(clients, bucket) == ["new", "former"]
    clients["s3"].put_object(Bucket=bucket, Key="a/b.txt", Body=b"later")
    assert write.undone(place(write, **output)) == {"status": "deleted"}
    assert content(clients, bucket) == ["later", "former"]


def test_without_versions_nothing_is_written_over(fake: aws.Aws, clients: Clients) -> None:
    """E12: what is there couldn't be put back; the same where versions are suspended."""
    bucket = make_bucket(clients, has_versions=False)
    clients["s3"].put_object(Bucket=bucket, Key="a/b.txt", Body=b"former")
    assert word(writing(bucket).act()) == ("rejected", "object_exists")
    assert content(clients, bucket) == ["former"]
    suspended = make_bucket(clients, has_versions=True, status="Suspended")
    assert word(writing(suspended).act()) == ("rejected", "suspended")


def test_what_somebody_wrote_over_ours_stays(fake: aws.Aws, clients: Clients) -> None:
    """E12: without versions the undo leaves what isn't ours."""
    bucket = make_bucket(clients, has_versions=False)
    write = writing(bucket)
    output = write.done()
    clients["s3"].put_object(Bucket=bucket, Key="a/b.txt", Body=b"later")
    assert write.undone(place(write, **output)) == {"status": "already_gone"}
    assert content(clients, bucket) == ["later"]


@pytest.mark.parametrize("has_versions", [True, False])
def test_two_writes_at_once_are_one(fake: aws.Aws, clients: Clients, *, has_versions: bool) -> None:
    """E8: each write has the condition that nothing was written since it looked; the later one finds the earlier."""
    bucket = make_bucket(clients, has_versions=has_versions)
    write = writing(bucket)
    held = fake.between.hold("PUT ")
    outputs: list[Json] = []
    late = threading.Thread(target=lambda: outputs.append(write.done()))
    late.start()
    wait_until(lambda: fake.between.is_spent)
    outputs.append(write.done())
    held.set()
    late.join()
    assert outputs[0] == outputs[1]
    assert content(clients, bucket) == ["new"]


def test_somebody_elses_write_in_between_is_no_effect(fake: aws.Aws, clients: Clients) -> None:
    """E3: the condition failed, so nothing was written: another try looks anew."""
    bucket = make_bucket(clients, has_versions=True)
    write = writing(bucket)
    fake.between.reply("PUT ", aws.fail_s3(412, "PreconditionFailed", "changed"))
    assert word(write.act()) == ("unavailable", "write_conflict")
    assert write.done()
    assert content(clients, bucket) == ["new"]


def test_versions_of_other_objects_and_operations_are_left_alone(fake: aws.Aws, clients: Clients) -> None:
    """E6, E7: a key that begins likewise, and another operation on the same key."""
    bucket = make_bucket(clients, has_versions=True)
    one, other, longer = writing(bucket), writing(bucket, "other"), writing(bucket, "longer", key="a/b.txt.old")
    for each in (one, other, longer):
        each.done()
    assert one.undone(place(one)) == {"status": "deleted"}
    assert content(clients, bucket) == ["other"]
    assert other.find()[0] == longer.find()[0] == "done"


def test_a_bucket_that_is_not_there_is_final(fake: aws.Aws) -> None:
    """E3: rejected, with AWS's code."""
    assert word(writing("bucket-nobody-made").act()) == ("rejected", "NoSuchBucket")


# Messages


def test_a_message_is_sent_once(fake: aws.Aws, clients: Clients) -> None:
    """E8: the queue knows a message that it had within five minutes, also when the answer was lost."""
    queue = clients["sqs"].create_queue(QueueName=f"{uuid.uuid4().hex}.fifo", Attributes={"FifoQueue": "true"})
    send = deed("aws.send_message", queue_url=queue["QueueUrl"], body="hello")
    fake.between.lose("POST /")
    assert send.act().kind.value == "unknown"
    first = send.done()
    assert send.act(attempt=3).output == first
    received = clients["sqs"].receive_message(QueueUrl=queue["QueueUrl"], MaxNumberOfMessages=10)["Messages"]
    assert [each["Body"] for each in received] == ["hello"]


def test_a_message_to_what_would_not_know_it_again_is_refused(fake: aws.Aws, clients: Clients) -> None:
    """E8: a standard queue has no deduplication, so a second try would be a second message."""
    queue = clients["sqs"].create_queue(QueueName=uuid.uuid4().hex)["QueueUrl"]
    topic = clients["sns"].create_topic(Name=uuid.uuid4().hex)["TopicArn"]
    assert word(deed("aws.send_message", queue_url=queue, body="x").act()) == ("rejected", "not_fifo")
    assert word(deed("aws.publish", topic_arn=topic, message="x").act()) == ("rejected", "not_fifo")


def test_errors_of_a_queue_are_outcomes(fake: aws.Aws, clients: Clients) -> None:
    """E3: a queue that isn't there is final, one that is throttled isn't."""
    send = deed("aws.send_message", queue_url=f"{fake.url}/123456789012/nobody.fifo", body="x")
    kind, code = word(send.act())
    assert (kind, "NonExistentQueue" in code or "QueueDoesNotExist" in code) == ("rejected", True)
    fake.between.reply("POST /", aws.fail_sqs(400, "RequestThrottled", "slow down"))
    assert word(send.act()) == ("unavailable", "RequestThrottled")


def test_a_message_is_published_once(fake: aws.Aws, clients: Clients) -> None:
    """E8: what is subscribed to the topic gets it once, by the same deduplication id."""
    name = f"{uuid.uuid4().hex}.fifo"
    topic = clients["sns"].create_topic(Name=name, Attributes={"FifoTopic": "true"})["TopicArn"]
    queue = clients["sqs"].create_queue(QueueName=name, Attributes={"FifoQueue": "true"})["QueueUrl"]
    arn = clients["sqs"].get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    clients["sns"].subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn, Attributes={"RawMessageDelivery": "true"})
    publish = deed("aws.publish", topic_arn=topic, message="hello")
    first = publish.done()
    assert publish.act(attempt=2).output == first
    received = clients["sqs"].receive_message(QueueUrl=queue, MaxNumberOfMessages=10)["Messages"]
    assert [each["Body"] for each in received] == ["hello"]


def test_how_long_keys_are_kept_is_declared() -> None:
    """E6: what is in doubt for longer is never blindly repeated; machines and objects are found at any age."""
    kept = {name: REGISTRY.facts_of(name).key_retention_ms for name in REGISTRY.names() if name.startswith("aws.")}
    assert {name: each for name, each in kept.items() if each is not None} == {
        "aws.send_message": 300_000,
        "aws.publish": 300_000,
    }
