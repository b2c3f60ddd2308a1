"""A transactional producer over a raw connection: each request in the version that a test wants."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from raw_client import INIT_PRODUCER_ID, WAIT_SECONDS, RawConnection, Topic

from barnabas.records.record import encode_batch

FIND_COORDINATOR, ADD_PARTITIONS, ADD_OFFSETS, END_TXN, WRITE_TXN_MARKERS = 10, 24, 25, 26, 27
TXN_OFFSET_COMMIT, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 28, 65, 66
BATCHED_FROM: Final = 4
"""The first version of AddPartitionsToTxn that has several transactions."""
NEW_EPOCHS_FROM: Final = 5
"""The first version of EndTxn under which each transaction has an epoch of its own (KIP-890)."""


class RawTransaction:
    """A producer as its client knows it: owns its id, its epoch and its sequences."""

    def __init__(self, connection: RawConnection, transactional_id: str, *, timeout_ms: int = 60_000) -> None:
        """It has the next epoch of its transactional id; whoever had it before is fenced."""
        self.connection = connection
        self.transactional_id = transactional_id
        find = {"key_type": 1, "coordinator_keys": [transactional_id]}
        self.wait(FIND_COORDINATOR, 4, find, lambda answer: answer.coordinators[0].error_code == 0)
        body = {
            "transactional_id": transactional_id,
            "transaction_timeout": timeout_ms,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        answer = self.wait(INIT_PRODUCER_ID, 5, body, lambda answer: answer.error_code == 0)
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self._sequences: dict[tuple[str, int], int] = {}

    @property
    def named(self) -> dict[str, Any]:
        """The fields that name it in most requests."""
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    def wait(
        self, api_key: int, version: int, body: Mapping[str, Any], is_there: Callable[[Any], bool]
    ) -> Any:
        """Ask until the answer is as wanted."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not is_there(answer := self.connection.ask(api_key, version, body)):
            assert time.monotonic() < deadline, f"still {answer}"
            time.sleep(0.02)
        return answer

    def batch(self, topic: Topic, partition: int, *values: bytes) -> bytes:
        """Its next batch for a partition."""
        sequence = self._sequences.get((topic.name, partition), 0)
        self._sequences[topic.name, partition] = sequence + len(values)
        return encode_batch(
            [(time.time_ns() // 1_000_000, None, value, ()) for value in values],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )

    def produce(self, topic: Topic, *values: bytes, partition: int = 0, version: int = 13) -> int:
        """Append, and return the code; from version 12 on that adds the partition."""
        records = {partition: self.batch(topic, partition, *values)}
        sent = topic.produce(
            self.connection, records, version=version, transactional_id=self.transactional_id
        )
        code: int = sent[0].error_code
        return code

    def add_body(self, topic: Topic, *partitions: int, version: int) -> dict[str, Any]:
        topics = [{"name": topic.name, "partitions": list(partitions)}]
        if version >= BATCHED_FROM:
            return {"transactions": [{**self.named, "verify_only": False, "topics": topics}]}
        fields = {f"v3_and_below_{name}": value for name, value in self.named.items()}
        return {**fields, "v3_and_below_topics": topics}

    def offsets_body(self, group: str, topic: Topic, offset: int) -> dict[str, Any]:
        partition = {
            "partition_index": 0,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "m",
        }
        return {
            **self.named,
            "group_id": group,
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"name": topic.name, "partitions": [partition]}],
        }

    def end(self, *, committed: bool, version: int = NEW_EPOCHS_FROM) -> int:
        """End the transaction and go on as the answer says; returns the code."""
        answer = self.connection.ask(END_TXN, version, {**self.named, "committed": committed})
        if version >= NEW_EPOCHS_FROM and answer.error_code == 0:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self._sequences.clear()
        code: int = answer.error_code
        return code

    def wait_for(self, *states: str) -> None:
        """Until its coordinator says that the transaction is in one of these."""
        self.wait(
            DESCRIBE_TRANSACTIONS,
            0,
            {"transactional_ids": [self.transactional_id]},
            lambda answer: answer.transaction_states[0].transaction_state in states,
        )


def body_in_transaction(
    connection: RawConnection, topic: Topic, group: str, api_key: int, version: int
) -> Mapping[str, Any]:
    """A request of this API and version that asks for something that can be done, in a transaction of its own."""
    mine = RawTransaction(connection, f"asked-{api_key}-{version}-{topic.name}")
    if api_key == ADD_PARTITIONS:
        return mine.add_body(topic, 0, version=version)
    if api_key == ADD_OFFSETS:
        return {**mine.named, "group_id": group}
    if api_key == TXN_OFFSET_COMMIT:
        added = connection.ask(ADD_OFFSETS, 4, {**mine.named, "group_id": group})
        assert added.error_code == 0, added
        return mine.offsets_body(group, topic, 7)
    assert mine.produce(topic, b"v") == 0
    if api_key == END_TXN:
        return {**mine.named, "committed": True}
    if api_key == WRITE_TXN_MARKERS:
        marker = {
            "producer_id": mine.producer_id,
            "producer_epoch": mine.epoch,
            "transaction_result": False,
            "coordinator_epoch": 0,
            "topics": [{"name": topic.name, "partition_indexes": [0]}],
        }
        return {"markers": [marker]}
    return {"transactional_ids": [mine.transactional_id]} if api_key == DESCRIBE_TRANSACTIONS else {}


IN_TRANSACTION: Final = frozenset(
    {
        ADD_PARTITIONS,
        ADD_OFFSETS,
        END_TXN,
        WRITE_TXN_MARKERS,
        TXN_OFFSET_COMMIT,
        DESCRIBE_TRANSACTIONS,
        LIST_TRANSACTIONS,
    }
)
"""The APIs that it is for."""
