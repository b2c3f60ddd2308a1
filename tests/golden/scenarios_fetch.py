"""Records on their way out, and where they are: Fetch with and without sessions, ListOffsets, leader epochs."""

from __future__ import annotations

import time
from typing import Any, Final

from golden_batches import SOME_TIME_MS, batch, produce
from golden_session import UNKNOWN_TOPIC, Run, TopicRef, scenario

FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH, DELETE_RECORDS = 1, 2, 23, 21
BY_ID_FROM: Final = 13
SESSIONS_FROM: Final = 7


def wanted(topic: TopicRef, offsets: dict[int, int], **fields: int) -> dict[str, Any]:
    """A topic's part of a Fetch request, for any version."""
    partitions = [
        {
            "partition": index,
            "fetch_offset": offset,
            "partition_max_bytes": 1 << 20,
            "current_leader_epoch": -1,
            **fields,
        }
        for index, offset in offsets.items()
    ]
    return {"topic": topic.name, "topic_id": topic.topic_id, "partitions": partitions}


def fetch_body(*topics: dict[str, Any], **fields: Any) -> dict[str, Any]:
    body = {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 22,
        "session_id": 0,
        "session_epoch": -1,
    }
    return {**body, "topics": topics, **fields}


@scenario(FETCH)
def fetch(run: Run) -> None:
    topic = run.topic(partitions=3)
    produce(run, topic, {0: batch(b"a", b"b"), 1: batch(b"c", compression=1)})
    produce(run, topic, {0: batch(b"d" * 1000)})
    run.ask("from the start", fetch_body(wanted(topic, {0: 0, 1: 0, 2: 0})))
    run.ask("inside a batch", fetch_body(wanted(topic, {0: 1})))
    run.ask("at the end", fetch_body(wanted(topic, {0: 3})))
    run.ask("beyond the end", fetch_body(wanted(topic, {0: 4})))
    run.ask("negative", fetch_body(wanted(topic, {0: -1})))
    run.ask("read committed", fetch_body(wanted(topic, {0: 0}), isolation_level=1))
    run.ask("unknown isolation level", fetch_body(wanted(topic, {0: 0}), isolation_level=2))
    run.ask("one byte", fetch_body(wanted(topic, {0: 0, 1: 0}), max_bytes=1))
    run.ask("one byte a partition", fetch_body(wanted(topic, {0: 0, 1: 0}, partition_max_bytes=1)))
    run.ask("a batch and a half", fetch_body(wanted(topic, {0: 0}, partition_max_bytes=200)))
    run.ask("no bytes", fetch_body(wanted(topic, {0: 0}), max_bytes=0))
    run.ask("no bytes a partition", fetch_body(wanted(topic, {0: 0}, partition_max_bytes=0)))
    run.ask("negative bytes", fetch_body(wanted(topic, {0: 0, 9: 0}), max_bytes=-1))
    run.ask("negative bytes a partition", fetch_body(wanted(topic, {0: 0, 2: 0}, partition_max_bytes=-1)))
    run.ask("negative bytes at the end", fetch_body(wanted(topic, {0: 3}), max_bytes=-1))
    started = time.monotonic()
    run.ask("waited for", fetch_body(wanted(topic, {2: 0}), max_wait=60))
    run.record("waited 60 ms", time.monotonic() - started >= 0.05)
    run.ask("many bytes wanted", fetch_body(wanted(topic, {0: 2}), min_bytes=5_000, max_wait=20))
    run.ask("no bytes wanted", fetch_body(wanted(topic, {2: 0}), min_bytes=0, max_wait=2_000))
    run.ask("unknown partition", fetch_body(wanted(topic, {9: 0, 0: 3})))
    run.ask("negative partition", fetch_body(wanted(topic, {-1: 0})))
    run.ask("unknown topic", fetch_body(wanted(UNKNOWN_TOPIC, {0: 0})))
    run.ask("known and unknown topic", fetch_body(wanted(topic, {0: 3}), wanted(UNKNOWN_TOPIC, {0: 0})))
    run.ask("no topics", fetch_body())
    run.ask("no partitions", fetch_body(wanted(topic, {})))
    run.ask(
        "partition twice",
        fetch_body({**wanted(topic, {0: 3}), "partitions": wanted(topic, {0: 3})["partitions"] * 2}),
    )
    run.quietly(
        DELETE_RECORDS,
        {
            "topics": [{"name": topic.name, "partitions": [{"partition_index": 0, "offset": 2}]}],
            "timeout": 9_000,
        },
    )
    run.ask("below the start", fetch_body(wanted(topic, {0: 0})))
    run.ask("at the start", fetch_body(wanted(topic, {0: 2})))
    if run.version < BY_ID_FROM:
        run.ask("invalid name", fetch_body(wanted(TopicRef("not a name", bytes(16)), {0: 0})))
    else:
        run.ask("no id", fetch_body(wanted(TopicRef("", bytes(16)), {0: 0})))


@scenario(FETCH)
def fetch_by_epoch(run: Run) -> None:
    if run.version < 9:
        return
    topic = run.topic()
    produce(run, topic, {0: batch(b"a", b"b")})
    for epoch in (0, 1, -2):
        run.ask(f"leader epoch {epoch}", fetch_body(wanted(topic, {0: 0}, current_leader_epoch=epoch)))
    run.ask("leader epoch 1, beyond the end", fetch_body(wanted(topic, {0: 9}, current_leader_epoch=1)))
    if run.version >= 12:
        for epoch in (0, 1):
            run.ask(
                f"last fetched epoch {epoch}", fetch_body(wanted(topic, {0: 2}, last_fetched_epoch=epoch))
            )
        run.ask(
            "last fetched epoch 0, beyond the end", fetch_body(wanted(topic, {0: 9}, last_fetched_epoch=0))
        )


@scenario(FETCH)
def fetch_as_replica(run: Run) -> None:
    topic = run.topic()
    for replica in (1, 5, -2):
        state = (
            {"replica_state": {"replica_id": replica, "replica_epoch": -1}}
            if run.version >= 15
            else {"replica_id": replica}
        )
        run.ask(f"replica {replica}", fetch_body(wanted(topic, {0: 0}), **state))


@scenario(FETCH)
def fetch_with_rack(run: Run) -> None:
    """Without a selector a leader sends nobody elsewhere."""
    if run.version < 11:
        return
    topic = run.topic()
    produce(run, topic, {0: batch(b"a", b"b")})
    for rack in ("", "east", "é" * 200):
        run.ask(f"rack {rack[:4]!r}", fetch_body(wanted(topic, {0: 0}), rack_id=rack))
    run.ask("rack, beyond the end", fetch_body(wanted(topic, {0: 9}), rack_id="east"))
    run.ask("rack, other epoch", fetch_body(wanted(topic, {0: 0}, current_leader_epoch=7), rack_id="east"))
    opened = run.ask("rack, session", fetch_body(wanted(topic, {0: 0}), rack_id="east", session_epoch=0))
    session = {"session_id": opened.session_id, "session_epoch": 1}
    run.ask("rack, nothing new", fetch_body(wanted(topic, {0: 2}), rack_id="east", **session))


@scenario(FETCH)
def fetch_session(run: Run) -> None:
    """Incremental fetch sessions (KIP-227)."""
    if run.version < SESSIONS_FROM:
        return
    topic = run.topic(partitions=3)
    produce(run, topic, {0: batch(b"a")})

    def forgotten(*partitions: int) -> list[dict[str, Any]]:
        return [{"topic": topic.name, "topic_id": topic.topic_id, "partitions": partitions}]

    opened = run.ask("opened", fetch_body(wanted(topic, {0: 0, 1: 0}), session_epoch=0))
    session = opened.session_id

    def go_on(step: str, epoch: int, *topics: dict[str, Any], **fields: Any) -> None:
        run.ask(step, fetch_body(*topics, session_id=session, session_epoch=epoch, **fields))

    go_on("nothing new asked", 1)
    go_on("moved on", 2, wanted(topic, {0: 1}))
    produce(run, topic, {1: batch(b"b")})
    go_on("only what changed", 3)
    go_on("added", 4, wanted(topic, {2: 0}))
    go_on("forgotten", 5, wanted(topic, {1: 1}), forgotten_topics_data=forgotten(2))
    go_on("unknown topic added", 6, wanted(UNKNOWN_TOPIC, {0: 0}))
    go_on("unknown partition added", 7, wanted(topic, {9: 0}))
    go_on("still complained of", 8)
    go_on("out of range", 9, wanted(topic, {0: 77}))
    go_on("wrong epoch", 50)
    go_on("right epoch after the wrong one", 10)
    go_on("closed", -1)
    go_on("after its end", 11)
    go_on("unknown session", 1)
    run.ask("unknown session closed", fetch_body(session_id=987_654_321, session_epoch=-1))
    run.ask(
        "unknown session reopened", fetch_body(wanted(topic, {0: 1}), session_id=987_654_321, session_epoch=0)
    )
    run.ask("opened with nothing", fetch_body(session_epoch=0))
    run.ask("epoch without session", fetch_body(wanted(topic, {0: 1}), session_epoch=5))


@scenario(LIST_OFFSETS)
def list_offsets(run: Run) -> None:
    topic = run.topic(partitions=3)
    produce(run, topic, {0: batch(b"a", b"b", b"c"), 1: batch(b"z", at=SOME_TIME_MS + 500)})
    produce(run, topic, {0: batch(b"d", b"e", at=SOME_TIME_MS + 100)})
    produce(run, topic, {0: batch(b"f", at=SOME_TIME_MS + 50, compression=1)})

    def look_up(
        step: str, name: str, *partitions: int, timestamp: int, epoch: int = -1, **fields: Any
    ) -> None:
        rows = [
            {"partition_index": index, "timestamp": timestamp, "current_leader_epoch": epoch}
            for index in partitions
        ]
        body = {"replica_id": -1, "topics": [{"name": name, "partitions": rows}], "timeout": 10_000}
        run.ask(step, {**body, **fields})

    for timestamp in (-1, -2, -3, -4, -5, -6, -7, -100):
        look_up(f"timestamp {timestamp}", topic.name, 0, 1, 2, timestamp=timestamp)
    for after in (-10, 0, 1, 2, 3, 60, 100, 101, 102, 500, 501):
        look_up(f"{after} ms after", topic.name, 0, 1, 2, timestamp=SOME_TIME_MS + after)
    look_up("time 0", topic.name, 0, 2, timestamp=0)
    look_up("read committed", topic.name, 0, timestamp=-1, isolation_level=1)
    look_up("read committed by time", topic.name, 0, timestamp=SOME_TIME_MS, isolation_level=1)
    look_up("unknown isolation level", topic.name, 0, timestamp=-1, isolation_level=2)
    look_up("unknown partition", topic.name, 0, 9, -1, timestamp=-1)
    look_up("unknown topic", UNKNOWN_TOPIC.name, 0, timestamp=-1)
    look_up("invalid name", "not a name", 0, timestamp=-1)
    look_up("partition twice", topic.name, 0, 0, timestamp=-1)
    look_up("no partitions", topic.name, timestamp=-1)
    for epoch in (0, 1, -2):
        look_up(f"leader epoch {epoch}", topic.name, 0, timestamp=-1, epoch=epoch)
    for replica in (1, 5, -2):
        look_up(f"replica {replica}", topic.name, 0, timestamp=-1, replica_id=replica)
    run.ask("no topics", {"replica_id": -1, "topics": []})
    run.quietly(
        DELETE_RECORDS,
        {
            "topics": [{"name": topic.name, "partitions": [{"partition_index": 0, "offset": 4}]}],
            "timeout": 9_000,
        },
    )
    for timestamp in (-2, -3, -4, SOME_TIME_MS):
        look_up(f"after deletion, timestamp {timestamp}", topic.name, 0, timestamp=timestamp)


@scenario(OFFSET_FOR_LEADER_EPOCH)
def offset_for_leader_epoch(run: Run) -> None:
    topic = run.topic(partitions=2)
    produce(run, topic, {0: batch(b"a", b"b")})

    def look_up(step: str, name: str, partition: int, leader_epoch: int, current: int = -1) -> None:
        row = {"partition": partition, "leader_epoch": leader_epoch, "current_leader_epoch": current}
        run.ask(step, {"replica_id": -1, "topics": [{"topic": name, "partitions": [row]}]})

    for epoch in (0, 1, 7, -1, -2):
        look_up(f"epoch {epoch}", topic.name, 0, epoch)
        look_up(f"epoch {epoch} of an empty partition", topic.name, 1, epoch)
    for current in (0, 1, -2):
        look_up(f"current epoch {current}", topic.name, 0, 0, current)
    look_up("unknown partition", topic.name, 9, 0)
    look_up("unknown topic", UNKNOWN_TOPIC.name, 0, 0)
    run.ask("no topics", {"replica_id": -1, "topics": []})
