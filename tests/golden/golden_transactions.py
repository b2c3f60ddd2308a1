"""Transactional producers for the session: what they send, how the ground is prepared and their ends are awaited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from golden_batches import PRODUCE, batch, produce_body
from golden_session import Run, TopicRef

FIND_COORDINATOR, INIT_PRODUCER_ID, ADD_PARTITIONS, ADD_OFFSETS, END_TXN = 10, 22, 24, 25, 26
WRITE_TXN_MARKERS, TXN_OFFSET_COMMIT, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 27, 28, 65, 66
OFFSET_FETCH, DESCRIBE_PRODUCERS = 9, 61
CONCURRENT_TRANSACTIONS, TRANSACTIONAL_ID_NOT_FOUND = 51, 105

NEW_EPOCHS_FROM: Final = 5
"""The first version of EndTxn under which each transaction has an epoch of its own (KIP-890)."""
BATCHED_FROM: Final = 4
"""The first version of AddPartitionsToTxn that has several transactions."""

Partitions = Sequence[tuple[str, Sequence[int]]]


def init_body(transactional_id: str | None, **fields: Any) -> dict[str, Any]:
    body = {"transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
    return {"transactional_id": transactional_id, **body, **fields}


@dataclass
class Producer:
    """A transactional producer as its client knows it: owns its id, its epoch and its sequences."""

    run: Run
    transactional_id: str
    producer_id: int
    epoch: int
    sequences: dict[tuple[str, int], int] = field(default_factory=dict)

    @property
    def named(self) -> dict[str, Any]:
        """The fields that name it in most requests."""
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    def batch(self, topic: TopicRef, partition: int = 0, *values: bytes, **fields: Any) -> bytes:
        """Its next batch for a partition."""
        key = topic.name, partition
        sequence = self.sequences.get(key, 0)
        listed = values or (b"value",)
        self.sequences[key] = sequence + len(listed)
        known: dict[str, Any] = {
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "base_sequence": sequence,
            "transactional": True,
        }
        return batch(*listed, **(known | fields))

    def produce_body(self, topic: TopicRef, *partitions: int, **fields: Any) -> dict[str, Any]:
        """A Produce request with its next batch for each partition."""
        batches = {partition: self.batch(topic, partition, **fields) for partition in partitions or (0,)}
        return produce_body(topic, batches, transactional_id=self.transactional_id)

    def produce(self, topic: TopicRef, *partitions: int, version: int | None = None) -> None:
        """Append quietly; from version 12 on that adds the partition."""
        body = self.produce_body(topic, *partitions)

        def is_taken(answer: Any) -> bool:
            return not any(part.error_code for row in answer.responses for part in row.partition_responses)

        # Right behind the transaction before it may have to wait.
        self.run.wait(PRODUCE, body, is_taken, version=version)

    def add_body(self, *partitions: tuple[str, Sequence[int]], version: int, **fields: Any) -> dict[str, Any]:
        """An AddPartitionsToTxn request of any version."""
        if version >= BATCHED_FROM:
            return {"transactions": [self.transaction(*partitions, **fields)]}
        named = {**self.named, **fields}
        return {f"v3_and_below_{name}": value for name, value in named.items()} | {
            "v3_and_below_topics": _topics(partitions)
        }

    def transaction(self, *partitions: tuple[str, Sequence[int]], **fields: Any) -> dict[str, Any]:
        """A transaction of the newer form."""
        return {"verify_only": False, **self.named, **fields, "topics": _topics(partitions)}

    def add(self, topic: TopicRef, *partitions: int, version: int = 3) -> None:
        """Add partitions quietly."""
        body = self.add_body((topic.name, partitions or (0,)), version=version)

        def is_added(answer: Any) -> bool:
            return not any(row.partition_error_code for row in _added(answer))

        self.run.wait(ADD_PARTITIONS, body, is_added, version=version)

    def end_body(self, *, committed: bool, **fields: Any) -> dict[str, Any]:
        return {**self.named, "committed": committed, **fields}

    def end(self, *, committed: bool = True, version: int = NEW_EPOCHS_FROM) -> None:
        """End the transaction quietly, wait until it is complete, and go on as the answer says."""
        answer = self.run.quietly(END_TXN, self.end_body(committed=committed), version=version)
        assert answer.error_code == 0, answer
        self.went_on(answer, version)
        self.wait_complete()

    def went_on(self, answer: Any, version: int) -> None:
        """Under newer versions an answer to EndTxn says which epoch the next transaction has."""
        if version >= NEW_EPOCHS_FROM and answer.error_code == 0:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()

    def wait_complete(self) -> None:
        """Until every partition has its marker."""

        def is_complete(answer: Any) -> bool:
            return answer.transaction_states[0].transaction_state in (
                "Empty",
                "CompleteCommit",
                "CompleteAbort",
            )

        self.run.wait(DESCRIBE_TRANSACTIONS, {"transactional_ids": [self.transactional_id]}, is_complete)

    def describe(self, step: str) -> None:
        """Record what its coordinator says of it."""
        self.run.ask(step, {"transactional_ids": [self.transactional_id]}, api=DESCRIBE_TRANSACTIONS)

    def offsets_body(
        self, group: str, topic: TopicRef, offsets: Mapping[int, int], **fields: Any
    ) -> dict[str, Any]:
        """A TxnOffsetCommit request."""
        partitions = [
            {
                "partition_index": index,
                "committed_offset": offset,
                "committed_leader_epoch": -1,
                "committed_metadata": "m",
            }
            for index, offset in offsets.items()
        ]
        return {
            **self.named,
            "group_id": group,
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"name": topic.name, "partitions": partitions}],
            **fields,
        }


def _topics(partitions: Partitions) -> list[dict[str, Any]]:
    return [{"name": name, "partitions": list(indexes)} for name, indexes in partitions]


def _added(answer: Any) -> list[Any]:
    """The rows of an answer to AddPartitionsToTxn of any version."""
    topics = getattr(answer, "results_by_topic_v3_and_below", None)
    if topics is None:
        topics = [topic for each in answer.results_by_transaction for topic in each.topic_results]
    return [row for topic in topics for row in topic.results_by_partition]


def coordinators(run: Run) -> None:
    """Wait until every transactional id has its coordinator, and every group."""
    run.coordinator()
    if run.cluster.has_transaction_coordinators:
        return
    run.wait(
        FIND_COORDINATOR,
        {"key_type": 1, "coordinator_keys": ["any"]},
        lambda answer: not answer.coordinators[0].error_code,
    )
    # So many names fall into every partition of the topic.
    ids = [f"any-{number}" for number in range(600)]
    run.wait(
        DESCRIBE_TRANSACTIONS,
        {"transactional_ids": ids},
        lambda answer: all(row.error_code == TRANSACTIONAL_ID_NOT_FOUND for row in answer.transaction_states),
    )
    run.cluster.has_transaction_coordinators = True


def producer(run: Run, what: str = "id", **fields: Any) -> Producer:
    """A producer with the next epoch of the transactional id `what`."""
    coordinators(run)
    name = run.name(what)
    body = init_body(name, **fields)
    # Whoever had it before may have left a transaction, and there may be no ids to give yet.
    answer = run.wait(INIT_PRODUCER_ID, body, lambda answer: not answer.error_code)
    return Producer(run, name, answer.producer_id, answer.producer_epoch)


def describe_producers(run: Run, step: str, topic: TopicRef, partitions: int = 1) -> None:
    """Record what partitions know of their producers."""
    asked = [{"name": topic.name, "partition_indexes": list(range(partitions))}]
    run.ask(step, {"topics": asked}, api=DESCRIBE_PRODUCERS)


def committed_offsets(
    run: Run, step: str, group: str, topic: TopicRef, partitions: Sequence[int] = (0,), *, stable: bool = True
) -> None:
    """Record what is committed of a group, as a reader hears it who waits for the ends of transactions, or does not."""
    wanted = [{"name": topic.name, "partition_indexes": list(partitions)}]
    body = {
        "groups": [{"group_id": group, "member_id": None, "member_epoch": -1, "topics": wanted}],
        "require_stable": stable,
    }
    run.ask(step, body, api=OFFSET_FETCH, version=9)
