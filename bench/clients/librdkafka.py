"""librdkafka by its own C interface: records go in and out by the thousand, at no cost of Python for each.

The library is the one that the confluent-kafka wheel carries. Only what a benchmark needs is declared; names and
layouts are those of rdkafka.h.
"""

from __future__ import annotations

import collections
import ctypes
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

PARTITION_UNASSIGNED: Final = -1
MESSAGE_COPY: Final = 2
ERROR_QUEUE_FULL: Final = -184
CONFIGURED: Final = 0
PRODUCER, CONSUMER = 0, 1
ERROR_TEXT_BYTES: Final = 512

PRODUCE_BATCH: Final = 10_000
CONSUME_BATCH: Final = 20_000
CONSUME_TIMEOUT_MS: Final = 50
"""A call returns when its batch is full or this has passed, so it is short: the end of a run must not wait for it."""
SILENCE_SECONDS_MAX: Final = 30.0


class Message(ctypes.Structure):
    """rd_kafka_message_t."""

    _fields_ = (
        ("err", ctypes.c_int),
        ("topic", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_void_p),
        ("len", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_len", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private", ctypes.c_void_p),
    )


_OnDelivery = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(Message), ctypes.c_void_p)


def _load() -> tuple[Any, Any]:
    """(the library, and the same for calls that are too short to hand over Python's lock)."""
    import confluent_kafka
    from confluent_kafka import cimpl  # noqa: F401  (loads the library's own dependencies)

    folder = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    path = str(next(folder.glob("librdkafka-*")))
    library, quick = ctypes.CDLL(path), ctypes.PyDLL(path)
    pointer = ctypes.c_void_p
    for name in ("conf_new", "topic_conf_new", "new", "topic_new", "queue_new"):
        getattr(library, f"rd_kafka_{name}").restype = pointer
    library.rd_kafka_new.argtypes = (ctypes.c_int, pointer, ctypes.c_char_p, ctypes.c_size_t)
    library.rd_kafka_conf_set.argtypes = (
        pointer, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t
    )  # fmt: skip
    library.rd_kafka_conf_set_dr_msg_cb.argtypes = (pointer, _OnDelivery)
    library.rd_kafka_topic_new.argtypes = (pointer, ctypes.c_char_p, pointer)
    library.rd_kafka_produce_batch.argtypes = (pointer, ctypes.c_int32, ctypes.c_int, pointer, ctypes.c_int)
    library.rd_kafka_poll.argtypes = library.rd_kafka_flush.argtypes = (pointer, ctypes.c_int)
    library.rd_kafka_outq_len.argtypes = library.rd_kafka_destroy.argtypes = (pointer,)
    library.rd_kafka_topic_destroy.argtypes = library.rd_kafka_queue_destroy.argtypes = (pointer,)
    library.rd_kafka_queue_new.argtypes = (pointer,)
    library.rd_kafka_consume_start_queue.argtypes = (pointer, ctypes.c_int32, ctypes.c_int64, pointer)
    library.rd_kafka_consume_stop.argtypes = (pointer, ctypes.c_int32)
    library.rd_kafka_consume_batch_queue.argtypes = (pointer, ctypes.c_int, pointer, ctypes.c_size_t)
    library.rd_kafka_consume_batch_queue.restype = ctypes.c_ssize_t
    quick.rd_kafka_message_destroy.argtypes = (pointer,)
    quick.rd_kafka_message_destroy.restype = None
    return library, quick


class _Handle:
    """One rd_kafka_t and one topic of it."""

    def __init__(self, kind: int, topic: str, settings: Mapping[str, object]) -> None:
        self.library, self.quick = _load()
        error_text = ctypes.create_string_buffer(ERROR_TEXT_BYTES)
        configuration = self.library.rd_kafka_conf_new()
        for name, value in settings.items():
            done = self.library.rd_kafka_conf_set(
                configuration, name.encode(), str(value).encode(), error_text, ERROR_TEXT_BYTES
            )
            assert done == CONFIGURED, error_text.value.decode()
        self.failed = 0
        self._on_delivery = _OnDelivery(self._count_failure)
        if kind == PRODUCER:
            self.library.rd_kafka_conf_set_dr_msg_cb(configuration, self._on_delivery)
        self.client = self.library.rd_kafka_new(kind, configuration, error_text, ERROR_TEXT_BYTES)
        assert self.client, error_text.value.decode()
        self.topic = self.library.rd_kafka_topic_new(self.client, topic.encode(), None)

    def _count_failure(self, *_: object) -> None:
        self.failed += 1

    def close(self) -> None:
        self.library.rd_kafka_topic_destroy(self.topic)
        self.library.rd_kafka_destroy(self.client)


def produce(topic: str, settings: Mapping[str, object], record_bytes: int, records: int) -> float:
    """Seconds from the first record to the last acknowledgement. Every record must arrive."""
    import os

    # Reports only of failures: one of each success would be a call into Python for each record.
    handle = _Handle(PRODUCER, topic, {**settings, "delivery.report.only.error": "true"})
    library = handle.library
    payload = ctypes.create_string_buffer(os.urandom(record_bytes), record_bytes)
    messages = (Message * PRODUCE_BATCH)()
    for message in messages:
        message.payload, message.len = ctypes.addressof(payload), record_bytes
    started, left = time.perf_counter(), records
    while left:
        # All records are alike: what did not fit in the queue is as well sent by the next call.
        left -= library.rd_kafka_produce_batch(
            handle.topic, PARTITION_UNASSIGNED, MESSAGE_COPY, messages, min(left, PRODUCE_BATCH)
        )
        library.rd_kafka_poll(handle.client, 0)
        if left and library.rd_kafka_outq_len(handle.client) > int(str(settings[QUEUE_SETTING])) * 0.9:
            time.sleep(0.002)
    library.rd_kafka_flush(handle.client, int(SILENCE_SECONDS_MAX * 1000))
    seconds = time.perf_counter() - started
    undelivered = library.rd_kafka_outq_len(handle.client)
    assert not handle.failed, f"{handle.failed} records failed"
    assert not undelivered, f"{undelivered} records were not delivered"
    handle.close()
    return seconds


QUEUE_SETTING: Final = "queue.buffering.max.messages"


def consume(topic: str, settings: Mapping[str, object], partitions: int, records: int) -> float:
    """Seconds from the start of the fetches to the last record."""
    handle = _Handle(CONSUMER, topic, settings)
    library = handle.library
    destroy = handle.quick.rd_kafka_message_destroy
    queue = library.rd_kafka_queue_new(handle.client)
    messages = (ctypes.c_void_p * CONSUME_BATCH)()
    started = last = time.perf_counter()
    for partition in range(partitions):
        assert library.rd_kafka_consume_start_queue(handle.topic, partition, 0, queue) == 0
    seen = 0
    while seen < records:
        count = library.rd_kafka_consume_batch_queue(
            queue, CONSUME_TIMEOUT_MS, messages, min(CONSUME_BATCH, records - seen)
        )
        if count <= 0:
            assert time.perf_counter() - last < SILENCE_SECONDS_MAX, f"only {seen} of {records} records came"
            continue
        first = ctypes.cast(messages[0], ctypes.POINTER(Message)).contents
        assert first.err == 0, f"librdkafka error {first.err}"
        collections.deque(map(destroy, messages[:count]), maxlen=0)
        seen += count
        last = time.perf_counter()
    seconds = last - started
    for partition in range(partitions):
        library.rd_kafka_consume_stop(handle.topic, partition)
    library.rd_kafka_queue_destroy(queue)
    handle.close()
    return seconds
