"""Transactions made by hand, so that they hang: open in a partition, and known to no coordinator."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from raw_client import CREATE_TOPICS, INIT_PRODUCER_ID, PRODUCE, RawConnection

from barnabas.records.record import encode_batch

FIND_COORDINATOR, ADD_PARTITIONS = 10, 24

UNVERIFIED: Final[Mapping[str, str]] = MappingProxyType(
    {"transaction.partition.verification.enable": "false"}
)
"""What a broker needs to take records of a transaction that its coordinator does not know."""

SECONDS_MAX: Final = 30.0
UNVERIFIED_VERSION: Final = 11
"""Of Produce: the last that does not make the partition part of the transaction."""


class TransactionalClient:
    """Owns a connection to a cluster of one node, and what it was told of each transactional id."""

    def __init__(self, port: int) -> None:
        self._connection = RawConnection(port)
        self.producers: dict[str, tuple[int, int]] = {}
        self._sequences: dict[tuple[int, str, int], int] = {}

    def close(self) -> None:
        self._connection.__exit__()

    def create_topic(self, name: str, partitions: int) -> None:
        topic = {"name": name, "num_partitions": partitions, "replication_factor": 1}
        topic |= {"assignments": (), "configs": ()}
        answer = self._connection.ask(
            CREATE_TOPICS, 7, {"topics": [topic], "timeout": 10_000, "validate_only": False}
        )
        assert answer.topics[0].error_code == 0, answer

    def init(self, transactional_id: str) -> int:
        """Make a producer of this id; returns its producer id."""
        body = {"transactional_id": transactional_id, "transaction_timeout": 600_000}
        body |= {"producer_id": -1, "producer_epoch": -1}
        keys = {"key_type": 1, "coordinator_keys": [transactional_id]}
        self._until(
            lambda: self._connection.ask(FIND_COORDINATOR, 4, keys),
            lambda answer: all(each.error_code == 0 for each in answer.coordinators),
        )
        answer = self._until(
            lambda: self._connection.ask(INIT_PRODUCER_ID, 4, body), lambda answer: answer.error_code == 0
        )
        self.producers[transactional_id] = int(answer.producer_id), int(answer.producer_epoch)
        return int(answer.producer_id)

    def add(self, transactional_id: str, topic: str, partition: int) -> None:
        """Make a partition part of the transaction, as a client of before KIP-890 does."""
        producer_id, epoch = self.producers[transactional_id]
        body: dict[str, Any] = {
            "v3_and_below_transactional_id": transactional_id,
            "v3_and_below_producer_id": producer_id,
            "v3_and_below_producer_epoch": epoch,
            "v3_and_below_topics": [{"name": topic, "partitions": [partition]}],
        }
        self._until(
            lambda: self._connection.ask(ADD_PARTITIONS, 3, body),
            lambda answer: (
                answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
            ),
        )

    def produce(self, transactional_id: str, topic: str, partition: int, *, minutes_ago: float = 0.0) -> int:
        """Write a record into the transaction, made so long ago; returns its offset."""
        producer_id, epoch = self.producers[transactional_id]
        at = (producer_id, topic, partition)
        sequence = self._sequences.get(at, 0)
        self._sequences[at] = sequence + 1
        made_ms = round((time.time() - minutes_ago * 60) * 1000)
        records = encode_batch(
            [(made_ms, b"key", b"value", ())],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=True,
        )
        data = {"name": topic, "partition_data": [{"index": partition, "records": records}]}
        body = {"transactional_id": transactional_id, "acks": -1, "timeout": 10_000, "topic_data": [data]}
        answer = self._until(  # a topic that has just been made may be without a leader yet
            lambda: self._connection.ask(PRODUCE, UNVERIFIED_VERSION, body),
            lambda answer: answer.responses[0].partition_responses[0].error_code == 0,
        )
        (result,) = answer.responses[0].partition_responses
        return int(result.base_offset)

    @staticmethod
    def _until(ask: Any, is_well: Any) -> Any:
        ends = time.monotonic() + SECONDS_MAX
        while not is_well(answer := ask()):
            assert time.monotonic() < ends, answer
            time.sleep(0.1)
        return answer
