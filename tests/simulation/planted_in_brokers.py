"""Faults to be planted into what is between the services of a broker: see `planted_faults`, which has them all."""

from __future__ import annotations

from typing import Any

from barnabas.links.storage_messages import AppendBatches
from barnabas.messages.storage_pb2 import AppendRequest


def by_the_leader_alone(as_request: Any) -> Any:
    """What a coordinator writes is in its own process, and safe there, one might think."""

    def instead(batches: AppendRequest | AppendBatches) -> Any:
        request = as_request(batches)
        if request is batches:  # it is a coordinator's
            request.acks = 1
        return request

    return instead
