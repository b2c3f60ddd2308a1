"""Records on their way in: acknowledgements, codecs, broken batches, numbered producers."""

from __future__ import annotations

import time
from typing import Any, Final

from golden_batches import PRODUCE, SOME_TIME_MS, batch, patched, produce_body, some_bad
from golden_session import ANSWER_SECONDS_MAX, NO_ANSWER_SECONDS, UNKNOWN_TOPIC, Run, TopicRef, scenario

LIST_OFFSETS, DESCRIBE_PRODUCERS, INIT_PRODUCER_ID = 2, 61, 22
LATEST: Final = -1
GOOD: Final = batch(b"one", b"two")
CODECS: Final = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}

BROKEN: Final[dict[str, bytes | None]] = {
    "null": None,
    "empty": b"",
    "cut in its header": GOOD[:40],
    "cut in its records": GOOD[:-1],
    "trailing bytes": GOOD + b"\0" * 5,
    "wrong CRC": GOOD[:-1] + b"!",
    "magic 0": patched(">b", 16, 0),
    "magic 1": patched(">b", 16, 1),
    "magic 3": patched(">b", 16, 3),
    "length too small": patched(">i", 8, 10),
    "length negative": patched(">i", 8, -1),
    "length too large": patched(">i", 8, len(GOOD)),
    "two batches": GOOD + GOOD,
    "no records": patched(">i", 57, 0),
    "records uncounted": patched(">i", 57, -1),
    "more records than offsets": patched(">i", 57, 3),
    "fewer records than offsets": patched(">i", 23, 7),
    "negative offsets": patched(">i", 23, -2),
    "base offset": patched(">q", 0, 5),
    "leader epoch": patched(">i", 12, 77),
    "control": patched(">h", 21, 0x20),
    "log append time": patched(">h", 21, 0x08),
    "unknown codec": patched(">h", 21, 5),
    "unused attribute": patched(">h", 21, 0x80),
    "producer without sequence": patched(">q", 43, 99),
    "sequence without producer": patched(">i", 53, 0),
    "epoch without producer": patched(">h", 51, 0),
    "max timestamp too low": patched(">q", 35, SOME_TIME_MS - 5),
    "no timestamp": batch(b"v", at=-1),
    "future": batch(b"v", at=int(time.time() * 1000) + 36_000_000),
    "too large": batch(bytes(2_000)),
}


def new_producer(run: Run) -> Any:
    """An id for an idempotent producer, once there are ids to give."""
    body = {"transactional_id": None, "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
    return run.wait(INIT_PRODUCER_ID, body, lambda answer: not answer.error_code)


@scenario(PRODUCE)
def produce_acknowledged(run: Run) -> None:
    topic = run.topic(partitions=3)
    for acks in (1, -1, 2, -2):
        run.ask(f"acks {acks}", produce_body(topic, {0: GOOD}, acks=acks))
    run.post(PRODUCE, run.version, produce_body(topic, {1: GOOD}, acks=0))
    offsets: dict[str, Any] = {
        "replica_id": -1,
        "topics": [{"name": topic.name, "partitions": [{"partition_index": 1, "timestamp": LATEST}]}],
    }
    run.wait(LIST_OFFSETS, offsets, lambda answer: answer.topics[0].partitions[0].offset == 2)
    run.ask("after acks 0", offsets, api=LIST_OFFSETS)
    run.ask("several partitions", produce_body(topic, {0: GOOD, 1: GOOD, 2: GOOD}))
    run.ask("unknown partition", produce_body(topic, {9: GOOD, 0: GOOD}))
    run.ask("negative partition", produce_body(topic, {-1: GOOD}))
    run.ask("unknown topic", produce_body(UNKNOWN_TOPIC, {0: GOOD}))
    run.ask("invalid name", produce_body(TopicRef("not a name", bytes(16)), {0: GOOD}))
    run.ask("internal topic", produce_body(TopicRef("__consumer_offsets", bytes(16)), {0: GOOD}))
    run.ask("no topics", {"acks": -1, "timeout": 10_000, "topic_data": []})
    run.ask("no partitions", produce_body(topic, {}))
    run.ask("timeout 0", {**produce_body(topic, {2: GOOD}), "timeout": 0})
    twice = produce_body(topic, {0: GOOD})
    twice["topic_data"].append(produce_body(topic, {1: GOOD})["topic_data"][0])
    run.ask("topic twice", twice)
    offsets["topics"][0]["partitions"] = [
        {"partition_index": index, "timestamp": LATEST} for index in range(3)
    ]
    run.ask("ends", offsets, api=LIST_OFFSETS)


@scenario(PRODUCE)
def produce_broken(run: Run) -> None:
    topic = run.topic(partitions=len(BROKEN), max_message_bytes="1500")
    for partition, (step, records) in enumerate(BROKEN.items()):
        if records is None and run.version != run.newest(PRODUCE):
            continue  # Kafka never answers it, and waiting once for nothing is enough
        seconds = ANSWER_SECONDS_MAX if records is not None else NO_ANSWER_SECONDS
        run.ask(step, produce_body(topic, {partition: records}), seconds=seconds)
        if run.version == run.newest(PRODUCE):
            asked = [{"partition_index": partition, "timestamp": LATEST}]
            run.ask(
                f"after {step}",
                {"replica_id": -1, "topics": [{"name": topic.name, "partitions": asked}]},
                api=LIST_OFFSETS,
            )
    run.ask("good and bad", produce_body(topic, {0: GOOD, 1: BROKEN["wrong CRC"]}))


@scenario(PRODUCE)
def produce_compressed(run: Run) -> None:
    topic = run.topic(partitions=len(CODECS))
    for partition, (codec, number) in enumerate(CODECS.items()):
        run.ask(codec, produce_body(topic, {partition: batch(b"a" * 100, b"b" * 100, compression=number)}))
    run.ask("garbled gzip", produce_body(topic, {0: patched(">h", 21, 1)}))


@scenario(PRODUCE)
def produce_by_topic_settings(run: Run) -> None:
    compacted = run.topic("compacted", cleanup_policy="compact")
    run.ask("with key", produce_body(compacted, {0: GOOD}))
    run.ask("without key", produce_body(compacted, {0: batch(b"v", key=None)}))
    run.ask("some without key", produce_body(compacted, {0: some_bad(key=None)}))
    run.ask("some without key, compressed", produce_body(compacted, {0: some_bad(key=None, compression=1)}))
    run.ask("no value", produce_body(compacted, {0: batch(None)}))
    stamped = run.topic("stamped", message_timestamp_type="LogAppendTime")
    run.ask("stamped by the broker", produce_body(stamped, {0: GOOD}))
    run.ask("stamped, compressed", produce_body(stamped, {0: batch(b"a" * 50, compression=1)}))
    young = run.topic("young", message_timestamp_before_max_ms="1000")
    run.ask("too old", produce_body(young, {0: GOOD}))
    now_ms = int(time.time() * 1000)
    run.ask("some too old", produce_body(young, {0: some_bad(at=now_ms, bad_at=SOME_TIME_MS)}))
    early = run.topic("early", message_timestamp_after_max_ms="1000")
    run.ask("too new", produce_body(early, {0: batch(b"v", at=int(time.time() * 1000) + 60_000)}))
    run.ask("some too new", produce_body(early, {0: some_bad(bad_at=now_ms + 60_000)}))
    both = run.topic("both", cleanup_policy="compact", message_timestamp_after_max_ms="1000")
    run.ask("bad key and bad time", produce_body(both, {0: some_bad(key=None, bad_at=now_ms + 60_000)}))
    wanting = run.topic("wanting", min_insync_replicas="2")
    run.ask("too few in-sync replicas", produce_body(wanting, {0: GOOD}))
    run.ask("too few, acks 1", produce_body(wanting, {0: GOOD}, acks=1))
    recoded = run.topic("recoded", compression_type="gzip")
    run.ask("compressed by the broker", produce_body(recoded, {0: batch(b"a" * 100)}))


@scenario(PRODUCE)
def produce_numbered(run: Run) -> None:
    """Idempotent producers: sequences, duplicates, epochs (KIP-98)."""
    topic = run.topic(partitions=4)
    got = new_producer(run)

    def send(
        step: str,
        sequence: int,
        *,
        epoch: int = 0,
        partition: int = 0,
        producer: int = got.producer_id,
        count: int = 2,
    ) -> None:
        data = batch(*[b"v"] * count, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
        run.ask(step, produce_body(topic, {partition: data}))

    send("first", 0)
    send("first again", 0)
    send("gap", 5)
    for number in range(1, 7):
        send(f"batch {number}", 2 * number)
    send("last again", 12)
    send("fifth last again", 4)
    send("long ago again", 0)
    send("overlapping", 11)
    send("new epoch, gap", 5, epoch=1)
    send("new epoch", 0, epoch=1)
    send("old epoch", 14)
    send("epoch skipped", 0, epoch=5)
    send("unnumbered start", 7, partition=1)
    send("after it", 9, partition=1)
    send("unknown producer", 0, partition=2, producer=got.producer_id + 900_000)
    send("negative epoch", 0, partition=3, epoch=-1)
    send("last number", 2**31 - 2, partition=3)
    send("wrapped around", 0, partition=3)
    two = batch(b"v", producer_id=got.producer_id, producer_epoch=5, base_sequence=2)
    run.ask("two batches", produce_body(topic, {0: two + two}))
    run.settle()
    run.ask(
        "state", {"topics": [{"name": topic.name, "partition_indexes": [0, 1, 2, 3]}]}, api=DESCRIBE_PRODUCERS
    )


@scenario(PRODUCE)
def produce_in_transaction(run: Run) -> None:
    topic = run.topic()
    run.ask("transactional id, plain batch", produce_body(topic, {0: GOOD}, transactional_id="some-id"))
    got = new_producer(run)
    fields: dict[str, Any] = {"producer_id": got.producer_id, "producer_epoch": 0, "base_sequence": 0}
    data = batch(b"v", transactional=True, **fields)
    run.ask("transactional batch", produce_body(topic, {0: data}, transactional_id="some-id"))
    run.ask("transactional batch, no id", produce_body(topic, {0: data}))


@scenario(INIT_PRODUCER_ID)
def init_producer_id(run: Run) -> None:
    plain: dict[str, Any] = {
        "transactional_id": None,
        "transaction_timeout": 60_000,
        "producer_id": -1,
        "producer_epoch": -1,
    }
    run.ask("plain", plain)
    run.ask("again", plain)
    run.ask("no timeout", {**plain, "transaction_timeout": 0})
    run.ask("known id", {**plain, "producer_id": 5, "producer_epoch": 1})
    run.ask("id without epoch", {**plain, "producer_id": 5})
    run.ask("epoch without id", {**plain, "producer_epoch": 5})
    run.ask("empty transactional id", {**plain, "transactional_id": ""})


@scenario(DESCRIBE_PRODUCERS)
def describe_producers(run: Run) -> None:
    topic = run.topic()
    run.ask("none yet", {"topics": [{"name": topic.name, "partition_indexes": [0]}]})
    run.ask("unknown partition", {"topics": [{"name": topic.name, "partition_indexes": [9, -1]}]})
    run.ask("unknown topic", {"topics": [{"name": UNKNOWN_TOPIC.name, "partition_indexes": [0]}]})
    run.ask("invalid name", {"topics": [{"name": "not a name", "partition_indexes": [0]}]})
    run.ask("no partitions", {"topics": [{"name": topic.name, "partition_indexes": []}]})
    run.ask("no topics", {"topics": []})
