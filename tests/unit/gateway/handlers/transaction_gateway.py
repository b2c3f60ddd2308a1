"""What tests of requests about transactions share: a gateway over a coordinator that owns all transactional ids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from gateway_harness import FakeLink, Gateway, small_cluster, topic_records

from barnabas.gateway import limits
from barnabas.metadata.image import TRANSACTION_STATE_TOPIC

PRODUCER: Final = {"transactional_id": "pay", "producer_id": 7, "producer_epoch": 3}
"""Of whom most requests are."""


def gateway_with(
    answers: dict[str, Callable[[Any], Any]] | None = None, *, partitions: int = 1, **options: Any
) -> Gateway:
    """A gateway whose coordinator owns all transactional ids, and answers these calls."""
    state = topic_records(TRANSACTION_STATE_TOPIC, [1] * partitions, coordinator_id="c1")
    gateway = Gateway([*small_cluster(), *state], **options)
    gateway.transactions.answers.update(answers or {})
    return gateway


def only_call(link: FakeLink) -> Any:
    ((_, message, timeout),) = link.calls
    assert timeout == limits.CALL_TIMEOUT_SECONDS
    return message
