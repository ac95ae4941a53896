"""Whether what the world holds agrees with what the log claims: from the sandbox's ledgers and the answer alone.

Nothing here calls the product's code. The sandbox's ledger is its vendors' own ordered record; the witness is a file
that each tool syncs a line to as it begins, has its effect and ends.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

EFFECTS = {
    "lead created": ("crm.create_lead", 1),
    "lead archived": ("crm.create_lead", -1),
    "charged": ("billing.charge", 1),
    "refunded": ("billing.charge", -1),
    "machine started": ("cloud.provision_vm", 1),
    "machine stopped": ("cloud.provision_vm", -1),
    "contract signed": ("crm.sign_contract", 1),
    "message sent": ("mail.send", 1),
}
"""What each effect adds to or takes from the world; refusals and tombstones change nothing."""


def count_net(ledger: list[dict[str, Any]], run_id: str) -> Counter[str]:
    """Return by forward key what the run has left in the world."""
    net: Counter[str] = Counter()
    for entry in ledger:
        if entry["effect"] in EFFECTS and entry["forward_key"].startswith(f"{run_id}/"):
            net[entry["forward_key"]] += EFFECTS[entry["effect"]][1]
    return net


def check_world(run: dict[str, Any], ledger: list[dict[str, Any]], records: list[dict[str, Any]]) -> list[str]:
    """Return every way in which the world and the claim disagree (S1, S2, S3, S5, S6, S7)."""
    run_id = run["id"]
    net = count_net(ledger, run_id)
    wrong = [f"{key} has a net effect of {count}" for key, count in net.items() if count not in {0, 1}]
    if run["status"] == "rolled_back" and sum(net.values()) != 0:
        wrong.append(f"rolled back, but {[key for key, count in net.items() if count]} is still there")
    if run["status"] == "succeeded":
        wrong += _check_complete(run, net)
    intents = {(r["body"]["key"], r["seq"]) for r in records if r["type"] == "intent"}
    known_keys = {key for key, _ in intents}
    wrong += [
        f"an effect without an intent: {e['key']}" for e in ledger if _is_of(e, run_id) and e["key"] not in known_keys
    ]
    return wrong + _check_order(ledger, run_id)


def _is_of(entry: dict[str, Any], run_id: str) -> bool:
    return bool(str(entry["key"]).startswith(f"{run_id}/"))


def _check_complete(run: dict[str, Any], net: Counter[str]) -> list[str]:
    done = [step for step in run["steps"] if step["status"] == "succeeded" and step["attempts"] > 0]
    return [] if sum(net.values()) == len(done) else [f"{len(done)} steps succeeded, {sum(net.values())} effects stand"]


def _check_order(ledger: list[dict[str, Any]], run_id: str) -> list[str]:
    """S6: nothing is applied after its undo; S7: on the shipped chain the undo goes in reverse order."""
    wrong = []
    undone: set[str] = set()
    applied: list[str] = []
    for entry in ledger:
        if entry["effect"] not in EFFECTS or not _is_of(entry, run_id):
            continue
        key, change = entry["forward_key"], EFFECTS[entry["effect"]][1]
        if change > 0:
            applied.append(key)
            wrong += [f"{key} was applied after its undo"] if key in undone else []
        else:
            undone.add(key)
            if applied and "servers" not in key and applied[-1] != key:
                wrong.append(f"{key} was undone before {applied[-1]}")
            applied = [other for other in applied if other != key]
    return wrong


def check_calls(witness: list[dict[str, Any]]) -> list[str]:
    """S4: calls of one operation never overlap within a process."""
    wrong = []
    open_calls: dict[tuple[str, int], int] = {}
    for line in witness:
        key = (line["key"] + "|" + line["tool"], line["pid"])
        if line["phase"] == "begin":
            if open_calls.get(key):
                wrong.append(f"{line['key']} began twice at once")
            open_calls[key] = 1
        elif line["phase"] == "end":
            open_calls[key] = 0
    return wrong
