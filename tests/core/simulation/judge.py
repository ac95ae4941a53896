"""The verdict on one run, by three witnesses: the log, the targets' ordered ledger, and what a user saw.

It checks by name the invariants S1-S11, L4, L5, C1-C5, V1, V2 and the bounds that each policy sets, and shares no code
with what it judges. `reading` weighs the log, `effects` the ledger; here the rest is added: what users saw, and what
became of each request.
"""

from __future__ import annotations

from tests.core.simulation.effects import Effects
from tests.core.simulation.evidence import Evidence, Findings
from tests.core.simulation.reading import Reading


def judge(evidence: Evidence) -> list[str]:
    """Return all violations, each with the name of its invariant; none means that all is well."""
    reading = Reading(evidence)
    findings = Findings(reading.findings)
    findings += Effects(evidence, reading).judge()
    findings.check(evidence.is_fold_equal, "L4: the state is not the fold of the log")
    findings.check(evidence.is_at_rest, "V1: the run is not at rest")
    findings += _judge_sight(evidence)
    findings += judge_requests(evidence, reading)
    return list(findings)


def _judge_sight(evidence: Evidence) -> Findings:
    """S11: the first error that a user saw is never overwritten."""
    findings = Findings()
    first = None
    for sight in evidence.seen:
        if first is not None:
            findings.check(sight["failure"] == first, f"S11: {first} was overwritten by {sight['failure']}")
        first = first or sight["failure"]
    return findings


def judge_requests(evidence: Evidence, reading: Reading) -> Findings:
    """Return what is wrong with what became of the operators' requests."""
    findings = Findings()
    pivots = [known for op, known in reading.known.items() if evidence.steps[op[0]]["class"] == "pivot"]
    is_pivot_open = evidence.status == "stuck" and any(known.doubt for known in pivots)
    for request_id in evidence.requests:
        answer = reading.answers.get(request_id)
        settled = answer in {"accepted", "refused", "void"} or (answer == "deferred" and is_pivot_open)
        findings.check(settled, f"E22: the request {request_id} is {answer}")
    verbs = {request["verb"] for _, request in reading.accepted}
    if evidence.status == "succeeded":
        turned = verbs & {"cancel", "rollback", "terminate"}
        findings.check(not turned, f"E22: succeeded though {turned} was accepted")
    if evidence.status == "terminated":
        asked = "terminate" in verbs or reading.abandoned
        findings.check(asked, "E22: terminated, and nobody asked for it")
    return findings
