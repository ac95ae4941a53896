"""AWS: machines (EC2), objects (S3) and messages (SQS, SNS), with AWS's own library (`pip install 'sagactl[plugins]'`).

    aws.run_instance  starts a machine; its undo aws.terminate_instance
    aws.put_object    writes an object; its undo aws.delete_object removes exactly that version of it
    aws.send_message  sends a message to a FIFO queue (SQS); it can't be unsent, so it belongs at or behind a pivot
    aws.publish       the same for a FIFO topic (SNS)
    aws.list_instances, aws.list_versions, aws.count_messages  only look

Keys come from where boto3 looks for them: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, the role of the
machine. A saga names none. The region is an argument and not a setting: a run that goes on on another machine must look
for its effects where they are. AWS_ENDPOINT_URL names another address than AWS's, such as that of a fake for tests.

*Machines.* AWS forgets client tokens after some time, so a machine has the operation's key as the tag `sagactl:key`,
and is looked for by it before one is started; the token covers the moments until a tag can be seen. A machine that was
terminated is no effect any more, and while AWS still shows it (about an hour) no other one is started for its key. What
isn't seen may only not be seen yet: a probe and an undo look again for AWS_SETTLE_SECONDS (5) before they say so.

*Objects* have the key in their metadata as `sagactl-key`. In a bucket with versions a new version covers the former
one, and the undo uncovers it. In one without, only a new key is written: what is there couldn't be put back. Each write
has the condition that what was seen is still there, so the same write twice is one.

*Messages* have a deduplication id, which AWS remembers for five minutes (`key_retention`). Nobody can look for one, so
what is in doubt for longer is a person's to decide.

What AWS says, and what it comes to: too many requests, no capacity, and an AWS that can't be reached at all are
unavailable; other errors of the 400s rejected, with AWS's code; wrong or missing keys rejected too, but in an undo
unavailable, so that it waits for the right ones; 5xx and no answer are in doubt.

No undo is late-safe: AWS takes no order to refuse a key. So sagactl undoes a step whose call may still be under way
only when it can't be any more.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import Annotated, Any, Final, Literal, TypedDict, TypeVar

from sagactl import CallContext, CannotTell, Done, NotDone, Rejected, Secret, Unavailable, tool

from ._aws import ask, expect
from ._reach import name_effect

T = TypeVar("T")
Region = Annotated[str, {"pattern": "^[a-z]{2}(-[a-z]+)+-[0-9]$"}, "Such as `eu-central-1`."]

TAG: Final = "sagactl:key"
TAG_LENGTH_MAX: Final = 255
LIVE_STATES: Final = frozenset({"pending", "running", "stopping", "stopped"})
SETTLE_SECONDS: Final = 5.0
"""For how long what isn't there is looked for again, unless AWS_SETTLE_SECONDS says otherwise."""

LOOK_SECONDS: Final = 1.0

METADATA: Final = "sagactl-key"
METADATA_LENGTH_MAX: Final = 1_024
CLOCK_SKEW: Final = timedelta(hours=1)
"""How much the clock of S3 may be behind that of the machine that began the action."""

VERSIONS_MAX: Final = 1_000
"""How many versions of an object are looked through, back to when the action began."""

MESSAGE_RETENTION: Final = "5m"


class Instance(TypedDict):
    """A machine that was started."""

    instance_id: str
    private_address: str | None


class Instances(TypedDict):
    """Machines that weren't terminated."""

    instances: list[Instance]


class Terminated(TypedDict):
    """What became of a machine."""

    status: Literal["terminated", "already_gone"]


class Written(TypedDict):
    """An object that was written; null where the bucket keeps no versions."""

    version_id: str | None


class Version(TypedDict):
    """A version of an object; the id is null where the bucket keeps none."""

    key: str
    version_id: str | None
    is_latest: bool
    etag: str


class Versions(TypedDict):
    """Objects with all their versions, the latest first."""

    versions: list[Version]


class Deleted(TypedDict):
    """What became of a version of an object."""

    status: Literal["deleted", "already_gone"]


class Count(TypedDict):
    """How many messages wait, more or less."""

    messages: int


class Sent(TypedDict):
    """A message that was sent."""

    deduplication_id: str


@tool(
    "aws.run_instance",
    compensation="aws.terminate_instance",
    compensation_with={"region": "${{ args.region }}", "instance_id": "${{ output.instance_id }}"},
    probe="aws.find_instance",
)
def run_instance(
    context: CallContext,
    *,
    region: Region,
    image_id: str,
    instance_type: str,
    name: str | None = None,
    subnet_id: str | None = None,
    security_group_ids: tuple[str, ...] = (),
    key_name: str | None = None,
    user_data: Secret | None = None,
    tags: dict[str, str] | None = None,
) -> Instance:
    """Start a machine.

    Args:
        context: The call.
        region: Where.
        image_id: What it starts from, such as `ami-0abc`.
        instance_type: How large it is, such as `t3.micro`.
        name: Its tag `Name`.
        subnet_id: Its network; the default one of the account otherwise.
        security_group_ids: Who may reach it.
        key_name: The key pair of who may log in.
        user_data: What it runs when it starts; may be a secret.
        tags: More tags.
    """
    known = _find_instances(context, region)
    live = [each for each in known if each["State"]["Name"] in LIVE_STATES]
    if live:
        return _tell_instance(live[0])
    if known:
        raise Rejected(f"{known[0]['InstanceId']} was started for this and terminated", code="instance_terminated")
    named = {"Name": name} if name else {}
    given = {**(tags or {}), **named, TAG: name_effect(context.forward_key, TAG_LENGTH_MAX)}
    tag_list = [{"Key": tag, "Value": value} for tag, value in given.items()]
    params = {
        "ImageId": image_id,
        "InstanceType": instance_type,
        "MinCount": 1,
        "MaxCount": 1,
        "ClientToken": _digest(context.idempotency_key),
        "TagSpecifications": [{"ResourceType": kind, "Tags": tag_list} for kind in ("instance", "volume")],
        "SubnetId": subnet_id,
        "SecurityGroupIds": list(security_group_ids) or None,
        "KeyName": key_name,
        "UserData": user_data,
    }
    started = ask(context, "ec2", region, lambda ec2: ec2.run_instances(**_leave_out_none(params)))
    return _tell_instance(started["Instances"][0])


@tool("aws.terminate_instance", null_safe=True)
def terminate_instance(context: CallContext, region: Region, instance_id: str | None = None) -> Terminated:
    """Terminate a machine, found by its id and by the key of its start: a twin that nobody knows of goes with it."""

    def terminate() -> bool:
        live = [each for each in _find_instances(context, region) if each["State"]["Name"] in LIVE_STATES]
        found = dict.fromkeys([*([instance_id] if instance_id else []), *(each["InstanceId"] for each in live)])
        return any([_terminate_one(context, region, each) for each in found])  # noqa: C419 - all of them, not up to one

    return {"status": "terminated" if _settle(context, terminate) else "already_gone"}


def _terminate_one(context: CallContext, region: str, instance_id: str) -> bool:
    """Terminate a machine and tell whether it was there."""
    try:
        ended = ask(context, "ec2", region, lambda ec2: ec2.terminate_instances(InstanceIds=[instance_id]))
    except Rejected as error:
        if error.code == "InvalidInstanceID.NotFound":
            return False
        raise
    return any(each["PreviousState"]["Name"] in LIVE_STATES for each in ended["TerminatingInstances"])


@tool("aws.find_instance", read_only=True)
def find_instance(context: CallContext, region: Region) -> Done | NotDone | CannotTell:
    """Find out whether a machine was started, by the key of its start."""
    known = _settle(context, lambda: _find_instances(context, region))
    live = [each for each in known if each["State"]["Name"] in LIVE_STATES]
    if len(live) > 1:
        return CannotTell(f"{len(live)} machines have this key: {', '.join(each['InstanceId'] for each in live)}")
    return Done(_tell_instance(live[0])) if live else NotDone()


@tool("aws.list_instances", read_only=True)
def list_instances(context: CallContext, region: Region, name: str) -> Instances:
    """List the machines of a name that weren't terminated."""
    known = _read_instances(context, region, "Name", name)
    return {"instances": [_tell_instance(each) for each in known if each["State"]["Name"] in LIVE_STATES]}


def _find_instances(context: CallContext, region: str) -> list[dict[str, Any]]:
    """Return the machines that were started for the action, whatever became of them."""
    return _read_instances(context, region, TAG, name_effect(context.forward_key, TAG_LENGTH_MAX))


def _read_instances(context: CallContext, region: str, tag: str, value: str) -> list[dict[str, Any]]:
    wanted = [{"Name": f"tag:{tag}", "Values": [value]}]

    def read(ec2: Any) -> list[dict[str, Any]]:
        pages = ec2.get_paginator("describe_instances").paginate(Filters=wanted)
        return [machine for page in pages for group in page["Reservations"] for machine in group["Instances"]]

    return ask(context, "ec2", region, read)


def _tell_instance(machine: dict[str, Any]) -> Instance:
    return {"instance_id": machine["InstanceId"], "private_address": machine.get("PrivateIpAddress")}


def _settle(context: CallContext, look: Callable[[], T]) -> T:
    """Look until there is something to see, or until it would be seen if it was there."""
    until = time.monotonic() + float(os.environ.get("AWS_SETTLE_SECONDS") or SETTLE_SECONDS)
    while not (found := look()) and time.monotonic() < until:
        context.cancelled.wait(LOOK_SECONDS)
    return found


@dataclass(frozen=True)
class _Object:
    """A place in S3, and what the action has written there."""

    context: CallContext
    region: str
    bucket: str
    key: str

    @property
    def mark(self) -> str:
        return name_effect(self.context.forward_key, METADATA_LENGTH_MAX)

    def ask(self, what: str, **params: Any) -> Any:
        """Make a request about the object."""
        given = {"Bucket": self.bucket, "Key": self.key, **params}
        return ask(self.context, "s3", self.region, lambda s3: getattr(s3, what)(**given))

    def keeps_versions(self) -> bool:
        """Tell whether a write leaves the former version; raises `Rejected` where that can't be relied on."""
        state = ask(self.context, "s3", self.region, lambda s3: s3.get_bucket_versioning(Bucket=self.bucket))
        if state.get("Status") == "Suspended":
            raise Rejected(f"the versions of {self.bucket} are suspended: a write may destroy one", code="suspended")
        return bool(state.get("Status") == "Enabled")

    def head(self, version_id: str | None = None) -> dict[str, Any] | None:
        """Return what is there, without its content; None where nothing is."""
        try:
            found: dict[str, Any] = self.ask("head_object", **_leave_out_none({"VersionId": version_id}))
        except Rejected as error:
            if error.code in {"404", "NoSuchKey", "NoSuchVersion"}:
                return None
            raise
        return found

    def find_own(self, *, has_versions: bool) -> list[dict[str, Any]]:
        """Return what the action has written and is still there, each as `head` gives it."""
        versions = self._read_version_ids() if has_versions else [None]
        found = [self.head(each) for each in versions]
        return [each for each in found if each is not None and each["Metadata"].get(METADATA) == self.mark]

    def _read_version_ids(self) -> list[str]:
        """Return the versions since the action began, the latest first."""

        def read(s3: Any) -> list[str]:
            pages = s3.get_paginator("list_object_versions").paginate(Bucket=self.bucket, Prefix=self.key)
            named = (expect(page, "Name") for page in pages)
            return list(self._take(version for page in named for version in page.get("Versions", [])))

        return ask(self.context, "s3", self.region, read)

    def _take(self, versions: Iterator[dict[str, Any]]) -> Iterator[str]:
        since = self.context.begun_at - CLOCK_SKEW
        for number, version in enumerate(versions):  # by key, this one's first; then by time
            if version["Key"] != self.key or version["LastModified"] < since:
                return
            if number >= VERSIONS_MAX:
                raise LookupError(f"more than {VERSIONS_MAX} versions of {self.key} since the action began")
            yield version["VersionId"]


@tool(
    "aws.put_object",
    compensation="aws.delete_object",
    compensation_with={
        **{name: f"${{{{ args.{name} }}}}" for name in ("region", "bucket", "key")},
        "version_id": "${{ output.version_id }}",
    },
    probe="aws.find_object",
)
def put_object(
    context: CallContext,
    *,
    region: Region,
    bucket: str,
    key: str,
    text: str,
    content_type: str = "text/plain; charset=utf-8",
) -> Written:
    """Write an object: a new version where the bucket keeps versions, a new key where it doesn't."""
    place = _Object(context, region, bucket, key)
    has_versions = place.keeps_versions()
    own = place.find_own(has_versions=has_versions)
    if own:
        return _tell_object(own[0])
    former = place.head()
    if former is not None and not has_versions:
        raise Rejected(f"{key} is there, and {bucket} keeps no versions: it couldn't be put back", code="object_exists")
    condition = {"IfNoneMatch": "*"} if former is None else {"IfMatch": former["ETag"]}
    content = {"Body": text.encode(), "ContentType": content_type, "Metadata": {METADATA: place.mark}}
    try:
        return _tell_object(expect(place.ask("put_object", **content, **condition), "ETag"))
    except Rejected as error:
        if error.code != "PreconditionFailed":
            raise
    own = place.find_own(has_versions=has_versions)
    if own:  # an earlier call of ours has landed just now
        return _tell_object(own[0])
    raise Unavailable(f"somebody else wrote {key} just now", code="write_conflict")


@tool("aws.delete_object", null_safe=True)
def delete_object(
    context: CallContext, region: Region, bucket: str, key: str, version_id: str | None = None
) -> Deleted:
    """Remove what an action has written, found by its version or by the key of the write; what it covered is back."""
    place = _Object(context, region, bucket, key)
    has_versions = version_id is not None or place.keeps_versions()
    own = [place.head(version_id)] if version_id else place.find_own(has_versions=has_versions)
    deleted = [_delete_one(place, each, has_versions=has_versions) for each in own if each is not None]
    return {"status": "deleted" if any(deleted) else "already_gone"}


def _delete_one(place: _Object, found: dict[str, Any], *, has_versions: bool) -> bool:
    """Remove one version, or the object unless somebody has written over it since; tell whether it was there."""
    if has_versions:
        place.ask("delete_object", VersionId=found["VersionId"])
        return True
    try:
        place.ask("delete_object", IfMatch=found["ETag"])
    except Rejected as error:
        if error.code in {"PreconditionFailed", "NoSuchKey"}:
            return False
        raise
    return True


@tool("aws.find_object", read_only=True)
def find_object(context: CallContext, region: Region, bucket: str, key: str) -> Done | NotDone | CannotTell:
    """Find out whether an object was written, by the key of the write."""
    place = _Object(context, region, bucket, key)
    own = place.find_own(has_versions=place.keeps_versions())
    if len(own) > 1:
        return CannotTell(f"{len(own)} versions of {key} have this key")
    return Done(_tell_object(own[0])) if own else NotDone()


@tool("aws.list_versions", read_only=True)
def list_versions(context: CallContext, region: Region, bucket: str, prefix: str) -> Versions:
    """List the objects whose keys begin with *prefix*, with all their versions."""

    def read(s3: Any) -> list[Any]:
        pages = s3.get_paginator("list_object_versions").paginate(Bucket=bucket, Prefix=prefix)
        named = (expect(page, "Name") for page in pages)
        return list(islice((each for page in named for each in page.get("Versions", [])), VERSIONS_MAX + 1))

    found = ask(context, "s3", region, read)
    if len(found) > VERSIONS_MAX:
        raise Rejected(f"more than {VERSIONS_MAX} versions begin with {prefix!r}", code="too_many")
    return {"versions": [_tell_version(each) for each in found]}


def _tell_version(found: dict[str, Any]) -> Version:
    version_id = None if found["VersionId"] == "null" else found["VersionId"]
    return {"key": found["Key"], "version_id": version_id, "is_latest": found["IsLatest"], "etag": found["ETag"]}


def _tell_object(found: dict[str, Any]) -> Written:
    return {"version_id": found.get("VersionId")}


@tool("aws.send_message", key_retention=MESSAGE_RETENTION)
def send_message(context: CallContext, *, region: Region, queue_url: str, body: str, group: str = "sagactl") -> Sent:
    """Send a message to a FIFO queue.

    Args:
        context: The call.
        region: Where the queue is.
        queue_url: Its address, which ends in `.fifo`.
        body: The message.
        group: Messages of one group are received in order.
    """
    token = _refuse_unordered(context, queue_url)
    params = {"QueueUrl": queue_url, "MessageBody": body, "MessageGroupId": group, "MessageDeduplicationId": token}
    expect(ask(context, "sqs", region, lambda sqs: sqs.send_message(**params)), "MessageId")
    return {"deduplication_id": token}


@tool("aws.publish", key_retention=MESSAGE_RETENTION)
def publish(
    context: CallContext,
    *,
    region: Region,
    topic_arn: str,
    message: str,
    subject: str | None = None,
    group: str = "sagactl",
) -> Sent:
    """Publish a message to a FIFO topic.

    Args:
        context: The call.
        region: Where the topic is.
        topic_arn: Its name, which ends in `.fifo`.
        message: What its subscribers get.
        subject: A title, for mail.
        group: Messages of one group are delivered in order.
    """
    token = _refuse_unordered(context, topic_arn)
    params = {
        "TopicArn": topic_arn,
        "Message": message,
        "Subject": subject,
        "MessageGroupId": group,
        "MessageDeduplicationId": token,
    }
    expect(ask(context, "sns", region, lambda sns: sns.publish(**_leave_out_none(params))), "MessageId")
    return {"deduplication_id": token}


@tool("aws.count_messages", read_only=True)
def count_messages(context: CallContext, region: Region, queue_url: str) -> Count:
    """Count the messages that wait in a queue; SQS says itself that this lags behind a little."""
    wanted = {"QueueUrl": queue_url, "AttributeNames": ["ApproximateNumberOfMessages"]}
    found = ask(context, "sqs", region, lambda sqs: sqs.get_queue_attributes(**wanted))
    return {"messages": int(found["Attributes"]["ApproximateNumberOfMessages"])}


def _refuse_unordered(context: CallContext, target: str) -> str:
    """Return the deduplication id of this operation; raises `Rejected` where the target would ignore it."""
    if not target.endswith(".fifo"):
        raise Rejected("only FIFO queues and topics know a message that they have had before", code="not_fifo")
    return _digest(context.idempotency_key)


def _digest(key: str) -> str:
    """Return the 64 characters that AWS takes for a token."""
    return hashlib.sha256(key.encode()).hexdigest()


def _leave_out_none(params: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in params.items() if value is not None}
