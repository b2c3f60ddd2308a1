"""A compacted topic: of each key the last record stays, a tombstone too, whatever fails.

Its segments are short and its cleaner is quick, so that a run has some dozens of cleanings. Tombstones stay, for
delete.retention.ms is a day.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from checks import image_of
from clients import BY_ID, Batch, Parts, Producer
from consumers import Consumer, Reader
from history import History, Place
from kafka_client import KafkaClient, create_topic
from log_checks import Log, check_agreement
from machines import NodeMachine
from world import World

from barnabas.records.batch import crc_is_valid, iterate_headers
from barnabas.records.record import Record, decode_records
from barnabas.storage.replica.replica import Replica

COMPACTED: Final = "balances"
PLACE: Final = Place(COMPACTED, 0)

SETTINGS: Final = {"cleanup.policy": "compact", "segment.ms": "400", "min.cleanable.dirty.ratio": "0.01"}

KEYS: Final = (5, 30, 100)
"""With many of them some are written once only."""

IDEMPOTENT: Final = "idempotent"

TOMBSTONES: Final = 0.25
"""How often a record is one."""


class KeyedProducer(Producer):
    """One whose records have keys; which one it is stands in a header, for a tombstone has no value."""

    ACKS: ClassVar[int] = -1
    """What the high watermark has passed is promised, else nothing."""

    keys: int

    def _parts(self, number: int, padding: bytes) -> Parts:
        key = f"key-{self._chance.randrange(self.keys)}".encode()
        name = f"{self.name}:{number}".encode()
        value = None if self._chance.random() < TOMBSTONES else padding
        return Parts(_content(key, name), key, value, [("number", name)])


class FickleProducer(KeyedProducer):
    """Sends each record once: what a leader wrote alone, and lost when it was deposed, comes no more."""

    def _take(self, batch: Batch, answer: asyncio.Future[Any]) -> bool:
        is_acknowledged = super()._take(batch, answer)
        if not is_acknowledged:
            self._unsettled.remove(batch)
        return is_acknowledged


class BoldProducer(FickleProducer):
    """The same with acks=1: it goes on writing to a leader whom no follower hears, whose finished segments then end
    above the high watermark. What it is told promises nothing.
    """

    ACKS = 1


class KeyedReader(Reader):
    """What is missing may have been compacted."""

    def _check_gap(self, found: Record) -> None:
        """Anything may go but the last of a key, which is looked for in the end."""

    def _content(self, found: Record) -> bytes:
        return _content_of(found)


def _content(key: bytes, name: bytes | None) -> bytes:
    return key + b"/" + (name or b"")


def _content_of(record: Record) -> bytes:
    """What is remembered of a record: unlike any other's."""
    assert record.key is not None
    return _content(record.key, record.headers[0][1])


def _key_of(content: bytes) -> bytes:
    return content.partition(b"/")[0]


class CompactedTopic:
    """Owner of its clients, and of what they were told."""

    def __init__(
        self, world: World, client: KafkaClient, topic: Mapping[str, Any], *, has_bold_producer: bool
    ) -> None:
        """`topic` as CreateTopics has it, but for name and partitions."""
        self.client = client
        self.history = History(world)
        self.readers: list[Reader] = []
        self._world = world
        own = [each for each in topic["configs"] if each["name"] not in SETTINGS]
        settings = [{"name": name, "value": value} for name, value in SETTINGS.items()]
        self._topic = {**topic, "name": COMPACTED, "num_partitions": 1, "configs": own + settings}
        self._has_bold_producer = has_bold_producer
        self._producers: list[Producer] = []

    @property
    def places(self) -> Sequence[Place]:
        """What there is of it."""
        return [PLACE] if self._producers else []

    def unmet(self) -> list[str]:
        if not self._producers:
            return [f"{COMPACTED} is not there"]
        return [f"{each.name} waits for {each.place}" for each in self._producers if not each.is_done]

    async def run(self, until: float) -> None:
        """Its producers end then."""
        problem = await create_topic(self.client, self._topic)
        if problem:
            self._world.violate(f"{COMPACTED} cannot be created: {problem}")
        keys = self._world.chance_of(COMPACTED).choice(KEYS)
        kinds: list[tuple[type[KeyedProducer], str]] = [
            (KeyedProducer, IDEMPOTENT),
            (FickleProducer, "fickle"),
        ]
        if self._has_bold_producer:
            kinds.append((BoldProducer, "bold"))
        async with asyncio.TaskGroup() as tasks:
            for make, kind in kinds:
                producer = self._producer(make, f"{kind}-{COMPACTED}")
                producer.keys = keys
                self._producers.append(producer)
                tasks.create_task(producer.run(until, is_idempotent=kind == IDEMPOTENT), name=producer.name)
            reader = KeyedReader(self._world, self.client, self.history, f"consumer-{COMPACTED}", PLACE)
            self.readers.append(reader)
            consumer = Consumer(self._world, self.client, reader, BY_ID, self._world.chance_of(reader.name))
            tasks.create_task(consumer.run(), name=consumer.name)

    def _producer(self, make: type[KeyedProducer], name: str) -> KeyedProducer:
        chance = self._world.chance_of(name)
        return make(
            *(self._world, self.client, self.history, name, PLACE),
            acks=make.ACKS,
            in_flight=chance.choice((1, 3)),
            versions=BY_ID,
            chance=chance,
        )

    def check(self, nodes: Sequence[NodeMachine]) -> None:
        """Hold what they were told against every in-sync replica."""
        record = image_of(self._world).topics[COMPACTED].partitions[PLACE.partition]
        logs: dict[str, Log] = {}
        ends: dict[str, int] = {}
        cleaned: dict[str, int] = {}
        for node in nodes:
            replica = node.replicas.find(record.topic_id, PLACE.partition) if node.replicas else None
            if node.node_id not in record.isr or replica is None or replica.log is None:
                continue
            contents = self._contents(node, replica)
            self._check_log(f"{PLACE} at {node.name} (ISR {list(record.isr)})", contents)
            logs[node.name] = contents
            ends[node.name] = replica.high_watermark
            # Further than this its cleaner has not come: what is not committed and the active segment it leaves alone.
            cleaned[node.name] = min(replica.high_watermark, replica.log.segment_base_offsets[-1])
        end = min(ends.values(), default=0)
        latest = last_of_each_key(logs, end, cleaned)
        check_agreement(self._world, PLACE, latest, compared(latest, end))

    def _contents(self, node: NodeMachine, replica: Replica) -> Log:
        opened, found = replica.log, Log()
        assert opened is not None
        offset = opened.log_start_offset
        while offset < opened.log_end_offset:
            data = bytes(opened.read(offset, 1_000_000))
            if not data:
                self._world.violate(f"{replica.name} at {node.name}: nothing can be read at {offset}")
                break
            for position, header in iterate_headers(data):
                batch = data[position : position + header.size_in_bytes]
                if not crc_is_valid(batch):
                    self._world.violate(f"{PLACE} at {node.name}: {header.base_offset} is damaged")
                for each in decode_records(batch):
                    found[each.offset] = _content_of(each), header.partition_leader_epoch
                offset = header.next_offset
        return found

    def _check_log(self, described: str, log: Log) -> None:
        last = {_key_of(content): offset for offset, (content, _) in log.items()}
        promised = self.history.promised(PLACE, is_one_enough=False)
        told = {offset: each.value for offset, each in promised.items()}
        for offset, content in {**told, **self.history.read.get(PLACE, {})}.items():
            if offset in log:
                if log[offset][0] != content:
                    self._world.violate(f"LOST: {content!r} was at {offset}, {described} has {log[offset]}")
            elif last.get(_key_of(content), -1) < offset:
                self._world.violate(
                    f"LOST: {content!r} was at {offset}, {described} has no record of its key from there on"
                )
        contents = [content for content, _ in log.values() if IDEMPOTENT.encode() in content]
        if len(set(contents)) < len(contents):
            self._world.violate(f"DOUBLED: {described} has a record twice")


def compared(latest: Mapping[str, Log], end: int) -> range:
    """From where all have something on: who copied a log that its leader had compacted may know of a lower high
    watermark than that one, and lack what was taken for records behind it.
    """
    return range(max((next(iter(log), end) for log in latest.values()), default=0), end)


def last_of_each_key(logs: Mapping[str, Log], end: int, cleaned: Mapping[str, int]) -> dict[str, Log]:
    """Of each replica, by name: below `end`, which all know to be committed. How far each has compacted is its own
    affair, and they agree on these.

    Who knows of a higher high watermark may have taken all that it had of a key for a record from `end` up to what it
    has `cleaned` at most. If none lacks that one, it is taken to have what another one still has.
    """
    last = {name: _by_key(log, 0, end) for name, log in logs.items()}
    later = {name: _by_key(log, end, cleaned[name]) for name, log in logs.items()}
    agreed = {name: {offset: logs[name][offset] for offset in found.values()} for name, found in last.items()}
    for name, found in later.items():
        for key, offset in found.items():
            kept = [last[each][key] for each in logs if key in last[each]]
            is_everywhere = not any(_lacks(logs[each], later[each], offset, logs[name]) for each in logs)
            if kept and key not in last[name] and is_everywhere:
                agreed[name][max(kept)] = next(log[max(kept)] for log in logs.values() if max(kept) in log)
    return {name: dict(sorted(found.items())) for name, found in agreed.items()}


def _by_key(log: Log, start: int, end: int) -> dict[bytes, int]:
    """The last offset of each key from `start` up to `end`."""
    return {_key_of(content): offset for offset, (content, _) in log.items() if start <= offset < end}


def _lacks(log: Log, later: Mapping[bytes, int], offset: int, other: Log) -> bool:
    """Whether a log has not the record that `other` has there, nor one for which it has taken that too."""
    record = other[offset]
    return log.get(offset) != record and later.get(_key_of(record[0]), -1) <= offset
