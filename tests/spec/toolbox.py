"""The tools that the sagas of these tests call: facts only, nothing behind them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sagactl.core.canonical import Json
from sagactl.core.saga import ToolFacts


def schema(**properties: Json) -> dict[str, Json]:
    """Return the schema of arguments; names that end in `_` are optional."""
    names: list[Json] = [name for name in properties if not name.endswith("_")]
    plain: dict[str, Json] = {name.rstrip("_"): content for name, content in properties.items()}
    return {"type": "object", "properties": plain, "required": names, "additionalProperties": False}


def output(**properties: Json) -> dict[str, Json]:
    """Return the schema of an output, open as those of tools are."""
    return {"type": "object", "properties": dict(properties)}


TEXT: Final[dict[str, Json]] = {"type": "string"}
WHOLE: Final[dict[str, Json]] = {"type": "integer"}
SECRET: Final[dict[str, Json]] = {"type": "string", "writeOnly": True}

_ALL: Final = (
    ToolFacts(
        "crm.create_lead",
        probe="crm.find_lead",
        arguments_schema=schema(email=TEXT, tags_={"type": "array", "items": TEXT}, note_=TEXT),
        output_schema=output(lead_id=TEXT, score=WHOLE),
    ),
    ToolFacts("crm.find_lead", read_only=True, arguments_schema=schema(email_=TEXT)),
    ToolFacts("crm.archive_lead", null_safe=True, arguments_schema=schema(lead_id=TEXT)),
    ToolFacts("crm.sign_contract", arguments_schema=schema(lead_id=TEXT), output_schema=output(contract=TEXT)),
    ToolFacts(
        "billing.charge",
        probe="billing.find_charge",
        compensation="billing.refund",
        compensation_with={"charge_id": "${{ output.charge_id }}", "amount": "${{ args.amount }}"},
        arguments_schema=schema(lead_id_=TEXT, amount={"type": "integer", "minimum": 1}, token_=SECRET),
        output_schema=output(charge_id=TEXT, receipt={"type": "object", "properties": {"url": TEXT}}),
    ),
    ToolFacts("billing.find_charge", read_only=True),
    ToolFacts("billing.refund", null_safe=True, arguments_schema=schema(charge_id_=TEXT, amount=WHOLE)),
    ToolFacts(
        "cloud.provision_vm",
        compensation="cloud.destroy_vm",
        compensation_with={"vm": "${{ output.vm }}"},
        arguments_schema=schema(name=TEXT, size_={"enum": ["small", "large"]}, cpus_={"type": "number"}),
        output_schema=output(vm=TEXT, cpus=WHOLE),
    ),
    ToolFacts("cloud.destroy_vm", null_safe=True, arguments_schema=schema(vm_=TEXT)),
    ToolFacts("mail.send", arguments_schema=schema(to=TEXT, template_=TEXT, body_={})),
    ToolFacts("mail.blast", idempotent=False, arguments_schema=schema(to_=TEXT)),
    ToolFacts("mail.recall", idempotent=False),
    ToolFacts("probe.read", read_only=True, output_schema={"type": "object"}),
    ToolFacts("any.thing", compensation="any.undo", output_schema={}),
    ToolFacts("any.undo", null_safe=True),
    ToolFacts(
        "any.script",
        compensation="any.undo",
        arguments_schema=schema(
            script_={"type": "string", "contentMediaType": "text/x-shellscript"},
            env_={"type": "object", "additionalProperties": TEXT},
        ),
    ),
    ToolFacts(
        "crm.put_address",
        compensation="any.undo",
        arguments_schema=schema(
            address=schema(city=TEXT, geo_=schema(lat={"type": "number"})),
            phones_={"type": "array", "items": schema(number=TEXT)},
        ),
    ),
    ToolFacts(
        "vault.lend",
        compensation="vault.take_back",
        compensation_with={"key": "${{ args.key }}", "note": "${{ args.note }}"},
        arguments_schema=schema(key_=SECRET, note_=TEXT, env_={"type": "object", "additionalProperties": SECRET}),
    ),
    ToolFacts(
        "vault.take_back",
        null_safe=True,
        arguments_schema=schema(key_=SECRET, note_=TEXT, env_={"type": "object", "additionalProperties": SECRET}),
    ),
    ToolFacts("bank.pay", key_retention_ms=86_400_000, compensation="bank.refund", arguments_schema=schema()),
    ToolFacts("bank.refund", null_safe=True, key_retention_ms=10_000, arguments_schema=schema()),
    ToolFacts("broken.pair", compensation="broken.gone"),
    ToolFacts("legacy.book", compensation="legacy.cancel", arguments_schema={}),
    ToolFacts("legacy.cancel"),
)

TOOLS: Final[Mapping[str, ToolFacts]] = {facts.name: facts for facts in _ALL}
