"""What readers and administrators see of transactions: isolation levels, descriptions, lists, markers by hand."""

from __future__ import annotations

from typing import Any, Final

from golden_batches import batch, produce
from golden_session import UNKNOWN_TOPIC, Run, scenario
from golden_transactions import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    LIST_TRANSACTIONS,
    WRITE_TXN_MARKERS,
    Producer,
    committed_offsets,
    coordinators,
    describe_producers,
    producer,
)
from scenarios_fetch import FETCH, LIST_OFFSETS, fetch_body, wanted

UNCOMMITTED, COMMITTED = 0, 1
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
DURATIONS_FROM: Final = 1
PATTERNS_FROM: Final = 2
"""The versions of ListTransactions that have these filters."""


@scenario(FETCH)
def fetch_of_transactions(run: Run) -> None:
    """Transactions that lie across one another: committed, aborted, open; plain records between them."""
    topic = run.topic()
    first, second, third = (producer(run, what) for what in ("first", "second", "third"))

    def read(step: str, *offsets: int) -> None:
        for level, name in ((UNCOMMITTED, "uncommitted"), (COMMITTED, "committed")):
            for offset in offsets:
                body = fetch_body(wanted(topic, {0: offset}), isolation_level=level)
                run.ask(f"{step}: {name} from {offset}", body)

    first.produce(topic)  # at 0
    second.produce(topic)  # at 1
    produce(run, topic, {0: batch(b"plain")})  # at 2
    read("two are open", 0, 1)
    second.end(committed=False)  # at 3
    read("the one behind is aborted", 0)
    third.produce(topic)  # at 4
    first.end()  # at 5
    read("the one in front is committed", 0, 2, 4, 5, 6)
    second.produce(topic)  # at 6
    third.end(committed=False)  # at 7
    second.end(committed=False)  # at 8
    read("all have ended", *range(10))
    describe_producers(run, "producers", topic)


@scenario(LIST_OFFSETS)
def list_offsets_of_transactions(run: Run) -> None:
    topic = run.topic()
    mine = producer(run)
    produce(run, topic, {0: batch(b"plain")})
    mine.produce(topic)
    produce(run, topic, {0: batch(b"plain", at=1_700_000_000_500)})

    def ask(step: str) -> None:
        for level in (UNCOMMITTED, COMMITTED):
            for timestamp in (LATEST, EARLIEST, 1_700_000_000_400):
                asked = [{"partition_index": 0, "timestamp": timestamp, "current_leader_epoch": -1}]
                body = {
                    "replica_id": -1,
                    "isolation_level": level,
                    "topics": [{"name": topic.name, "partitions": asked}],
                }
                run.ask(f"{step}: level {level} at {timestamp}", body)

    ask("open")
    mine.end()
    ask("committed")


@scenario(DESCRIBE_TRANSACTIONS)
def describe_transactions(run: Run) -> None:
    coordinators(run)
    run.ask("unknown", {"transactional_ids": [run.name("unknown")]})
    run.ask("empty id", {"transactional_ids": [""]})
    run.ask("none", {"transactional_ids": []})
    topic, other = run.topic(partitions=2), run.topic("other")
    empty, open_, committed, aborted = (
        producer(run, what) for what in ("empty", "open", "committed", "aborted")
    )
    open_.add(topic, 1, 0)
    open_.add(other)
    committed.produce(topic)
    committed.end()
    aborted.add(topic)
    aborted.end(committed=False, version=4)
    names = [each.transactional_id for each in (empty, open_, committed, aborted)]
    run.ask("in all states", {"transactional_ids": [*names, run.name("unknown")]})
    run.ask("twice", {"transactional_ids": [names[1], names[1]]})


@scenario(LIST_TRANSACTIONS)
def list_transactions(run: Run) -> None:
    topic = run.topic()
    empty, open_, committed = (producer(run, what) for what in ("empty", "open", "committed"))
    open_.add(topic)
    committed.produce(topic)
    committed.end()

    def show(step: str, **filters: Any) -> None:
        """Only the ids of this run: there are others."""
        body = {
            "state_filters": [],
            "producer_id_filters": [],
            "duration_filter": -1,
            "transactional_id_pattern": None,
            **filters,
        }
        answer = run.quietly(LIST_TRANSACTIONS, body, version=run.version)
        mine = [row for row in answer.transaction_states if row.transactional_id.startswith(run.name(""))]
        run.record(
            step,
            {
                "error_code": answer.error_code,
                "unknown_state_filters": answer.unknown_state_filters,
                "transaction_states": sorted(mine, key=lambda row: row.transactional_id),
            },
        )

    show("all")
    for states in (
        ["Ongoing"],
        ["ongoing"],
        ["Empty", "CompleteCommit"],
        ["Ongoing", "NoSuchState", "NoSuchState"],
        ["PrepareEpochFence", "Dead"],
        [""],
    ):
        show(f"states {states}", state_filters=states)
    show("producer", producer_id_filters=[open_.producer_id])
    show("two producers", producer_id_filters=[open_.producer_id, empty.producer_id])
    show("unknown producer", producer_id_filters=[2**60])
    show("producer and state", producer_id_filters=[open_.producer_id], state_filters=["Empty"])
    if run.version >= DURATIONS_FROM:
        for duration in (0, 3_600_000, -5):
            show(f"duration {duration}", duration_filter=duration)
    if run.version >= PATTERNS_FROM:
        name = run.name("")
        for pattern in ("", name + ".*", name + "(open|empty)", "open", ".*-open", "(", "*"):
            show(f"pattern {pattern.replace(name, 'name-')}", transactional_id_pattern=pattern)
        show("pattern and state", transactional_id_pattern=name + "[eo].*", state_filters=["Ongoing"])


def marker(of: Producer, *topics: tuple[str, list[int]], committed: bool = False, **fields: Any) -> Any:
    return {
        "producer_id": of.producer_id,
        "producer_epoch": of.epoch,
        "transaction_result": committed,
        "coordinator_epoch": 0,
        "transaction_version": 0,
        "topics": [{"name": name, "partition_indexes": indexes} for name, indexes in topics],
        **fields,
    }


@scenario(WRITE_TXN_MARKERS)
def write_txn_markers(run: Run) -> None:
    """What an administrator does who ends a transaction that hangs (KIP-664)."""
    topic = run.topic(partitions=3)
    producer(run, "hanging")
    hanging, other = producer(run, "hanging"), producer(run, "other")

    def write(step: str, *markers: Any) -> None:
        run.ask(step, {"markers": list(markers)})

    hanging.produce(topic, 0, 1)
    other.produce(topic, 1)
    describe_producers(run, "hanging", topic, 3)
    write("none")
    write("no partitions", marker(hanging))
    write("unknown partition", marker(hanging, (topic.name, [9])))
    write("unknown topic", marker(hanging, (UNKNOWN_TOPIC.name, [0])))
    write("older epoch", marker(hanging, (topic.name, [0]), producer_epoch=hanging.epoch - 1))
    write("aborted", marker(hanging, (topic.name, [0]), coordinator_epoch=5))
    write("again", marker(hanging, (topic.name, [0]), coordinator_epoch=5))
    write("coordinator of long ago", marker(hanging, (topic.name, [0]), coordinator_epoch=4))
    write("known and unknown partition", marker(hanging, (topic.name, [1, 8]), committed=True))
    write("producer that nobody knows", marker(other, (topic.name, [2]), producer_id=2**60))
    write("two of one producer", marker(other, (topic.name, [1])), marker(other, (topic.name, [0, 1])))
    describe_producers(run, "all have ended", topic, 3)
    body = fetch_body(wanted(topic, {0: 0, 1: 0}), isolation_level=COMMITTED)
    run.ask("read", body, api=FETCH)
    run.ask("its client goes on", hanging.produce_body(topic, 0), api=0)
    run.ask("its client ends it", hanging.end_body(committed=False), api=END_TXN)


@scenario(WRITE_TXN_MARKERS)
def write_txn_markers_of_newer_transactions(run: Run) -> None:
    """Markers that say which version of transactions they are of (KIP-1228), and one for offsets."""
    topic, group = run.topic(), run.name("group")
    mine = producer(run)
    mine.produce(topic)

    def write(step: str, *markers: Any) -> None:
        run.ask(step, {"markers": list(markers)})

    two = {"transaction_version": 2}
    write("same epoch while it is open", marker(mine, (topic.name, [0]), **two))
    write("next epoch", marker(mine, (topic.name, [0]), producer_epoch=mine.epoch + 1, **two))
    write("next epoch again", marker(mine, (topic.name, [0]), producer_epoch=mine.epoch + 1, **two))
    describe_producers(run, "ended", topic)
    run.ask("offsets", mine.offsets_body(group, topic, {0: 7}), api=28)
    committed_offsets(run, "offsets are pending", group, topic)
    partitions = ("__consumer_offsets", [0, 1, 2, 3])
    write("offsets aborted", marker(mine, partitions, producer_epoch=mine.epoch + 1, **two))
    committed_offsets(run, "offsets are gone", group, topic)


@scenario(DESCRIBE_PRODUCERS)
def describe_transactional_producers(run: Run) -> None:
    topic = run.topic(partitions=2)
    mine = producer(run)
    mine.produce(topic, 0, 1)
    describe_producers(run, "open", topic, 2)
    mine.end()
    describe_producers(run, "committed", topic, 2)
    mine.produce(topic)
    describe_producers(run, "open again", topic, 2)
