"""An agent's service: fifty orders at once, what happens as it happens, and what became of each."""

from collections import Counter
from pathlib import Path

from sagactl import CallContext, Committed, Rejected, RunStatus, Settings, open_project, tool
from sagactl.core.records import Outcome

CARD_LIMIT = 45


@tool("stock.reserve", compensation="stock.release", compensation_with={"sku": "${{ args.sku }}"})
def reserve(sku: str, context: CallContext) -> dict[str, str]:
    """Reserve an article; the same key is the same reservation."""
    return {"reservation": context.idempotency_key}


@tool("stock.release", null_safe=True)
def release(context: CallContext, sku: str | None = None) -> None:
    """Give a reservation back, found by the key it was made with."""


@tool("bank.charge", compensation="bank.refund", compensation_with={"charge_id": "${{ output.charge_id }}"})
def charge(amount: int, context: CallContext) -> dict[str, str]:
    """Charge the card."""
    if amount > CARD_LIMIT:
        raise Rejected("over the limit of the card", code="card_declined")
    return {"charge_id": context.idempotency_key}


@tool("bank.refund", null_safe=True)
def refund(context: CallContext, charge_id: str | None = None) -> None:
    """Give the money back."""


def show(committed: Committed) -> None:
    """Print each outcome once it is durable."""
    for record in committed.records:
        if isinstance(record, Outcome):
            print(committed.run_id, record.operation, record.kind)


def main() -> None:
    """Start the orders, drive them to their ends, and report."""
    with (
        open_project(Path(__file__).parent, tools=[reserve, release, charge, refund]) as project,
        project.driver(Settings(calls_max=16)) as driver,
    ):
        driver.subscribe(show)
        order = project.load("order")
        for number in range(1, 51):
            # The key makes a second start of this order the same run: nobody pays twice.
            driver.start(order, {"sku": f"book-{number}", "amount": number}, key=f"order-{number}")
        endings = driver.drive().values()
    print(dict(Counter(ending.status.value for ending in endings)))
    for ending in endings:
        if ending.status is not RunStatus.SUCCEEDED:
            print(ending.run_id, ending.status, ending.failure, ending.not_undone)


if __name__ == "__main__":
    main()
