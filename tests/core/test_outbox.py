"""What is said of alerts by how their deliveries stand."""

from __future__ import annotations

import pytest

from sagactl.core.alerting import Reason
from sagactl.core.outbox import Delivery, DeliveryState, Message, is_unheard

GIVEN_UP, DELIVERED, WAITING = DeliveryState.GIVEN_UP, DeliveryState.DELIVERED, DeliveryState.WAITING


@pytest.mark.parametrize(
    ("states", "is_open", "opened_seq", "expected"),
    [
        ((GIVEN_UP,), True, 3, True),
        ((GIVEN_UP, WAITING), True, 3, True),
        ((GIVEN_UP, DELIVERED), True, 3, False),
        ((WAITING,), True, 3, False),
        ((), True, 3, False),
        ((GIVEN_UP,), False, 3, False),
        ((GIVEN_UP,), True, 2, False),
    ],
)
def test_an_alert_is_unheard_that_stands_and_that_nobody_took(
    states: tuple[DeliveryState, ...], is_open: bool, opened_seq: int, expected: bool
) -> None:
    """E20: given up at a channel, taken by none, and what it tells of still stands; the word that it is over isn't."""
    deliveries = tuple(Delivery(f"to{number}", state, 1, 0) for number, state in enumerate(states))
    message = Message(1, "run1", "shop", 3, Reason.STUCK, "", opened_seq, 0, is_open, None, deliveries)
    assert is_unheard(message) is expected
