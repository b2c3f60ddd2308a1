"""One call of `links/coordinator_link.py`, one file."""

from __future__ import annotations

from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.runtime.core.producers import Producer
from barnabas.coordinator.runtime.core.record_strings import STRING_BYTES_MAX, fits_record
from barnabas.coordinator.runtime.handler import Handler, answer
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.kafka_values import PRODUCER_EPOCH_MAX

__all__ = [
    "Handler",
    "answer",
    "check_consumer_protocol",
    "check_group_id",
    "check_group_id_fits",
    "producer_of",
]


def check_consumer_protocol(config: CoordinatorConfig) -> None:
    """Raise UNSUPPORTED_VERSION where groups of the newer protocol are not to be served."""
    if "consumer" not in config.group_coordinator_rebalance_protocols:
        raise KafkaError(ErrorCode.unsupported_version, "The consumer group protocol is not enabled.")


def check_group_id(group_id: str) -> None:
    """Raise INVALID_GROUP_ID for the empty id, which no group with members can have, and as `check_group_id_fits`."""
    if not group_id:
        raise KafkaError(ErrorCode.invalid_group_id, "group.id must not be empty")
    check_group_id_fits(group_id)


def producer_of(producer_id: int, producer_epoch: int) -> Producer:
    """The producer of a transaction. Raises INVALID_PRODUCER_ID_MAPPING for numbers that none has."""
    if producer_id < 0 or not 0 <= producer_epoch <= PRODUCER_EPOCH_MAX:
        raise KafkaError(
            ErrorCode.invalid_producer_id_mapping, "no producer of a transaction has these numbers"
        )
    return Producer(producer_id, producer_epoch)


def check_group_id_fits(group_id: str) -> None:
    """Raise INVALID_GROUP_ID for an id that no record can have."""
    if not fits_record(group_id):
        raise KafkaError(ErrorCode.invalid_group_id, f"group.id may have {STRING_BYTES_MAX} bytes")
