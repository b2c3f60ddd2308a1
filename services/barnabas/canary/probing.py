"""The turns: a record through every gateway, the judgement on what is overdue, gateways that come and go."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Final

from confluent_kafka import KafkaException

from barnabas.canary import limits
from barnabas.canary.addresses import resolve
from barnabas.canary.canary_topic import FoundTopic, ensure_topic
from barnabas.canary.config import CanaryConfig
from barnabas.canary.core.ledger import Ledger, RecordId
from barnabas.canary.gateway_client import GatewayClient
from barnabas.canary.metrics import CanaryMetrics
from barnabas.kernel.clock import Clock
from barnabas.kernel.logs import get_logger

_TOPIC_GONE: Final = frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"})
"""What a produce is answered when somebody deleted the topic; librdkafka's names."""

log = get_logger("canary")


class Probing:
    """Owns the gateways' clients, the ledger and the sequences. Everything runs on the event loop."""

    def __init__(self, config: CanaryConfig, clock: Clock, run: str, metrics: CanaryMetrics) -> None:
        self._config = config
        self._clock = clock
        self._run = run
        self._metrics = metrics
        self._ledger = Ledger(
            metrics, timeout_seconds=config.timeout_ms / 1000, loss_seconds=config.loss_ms / 1000
        )
        self._clients: dict[str, GatewayClient] = {}
        self._sequences: dict[str, int] = {}
        self._next_offsets: dict[int, int] = {}
        self._failing: dict[str, str] = {}
        self._warming_up: set[str] = set()
        """Gateways whose first record is under way: a new client's connecting is none of the cluster's doing."""
        self._topic_id = ""
        self._is_topic_doubtful = False
        self._topic_trouble = ""
        """Why the last look at the topic failed, which is said once."""
        self._changing = asyncio.Lock()
        """Held while clients come and go."""

    @property
    def is_started(self) -> bool:
        """Whether the topic is there and gateways are being watched."""
        return bool(self._clients)

    async def start(self) -> None:
        """Make the topic through whichever gateway answers first, and begin with all of them."""
        while not self._next_offsets:
            gateways = await resolve(self._config.bootstrap_servers)
            try:
                found = await asyncio.to_thread(ensure_topic, self._config, ",".join(gateways), self._clock)
            except KafkaException as error:
                log.warning("the topic cannot be made or found", topic=self._config.topic, error=error)
                await asyncio.sleep(limits.START_RETRY_SECONDS)
            else:
                self._begin_with(found)
        await self.follow_gateways()

    async def follow_gateways(self) -> None:
        """Look the names up, and add and remove gateways accordingly."""
        async with self._changing:
            wanted = await resolve(self._config.bootstrap_servers, self._clients)
            for gateway in set(self._clients) - set(wanted):
                log.info("gateway gone", gateway=gateway)
                client = self._clients.pop(gateway)
                self._warming_up.discard(gateway)
                self._ledger.remove_reader(gateway)
                self._metrics.remove_gateway(gateway)
                await client.close()
            self._add_missing(wanted)

    async def follow_topic(self) -> None:
        """Look at the topic, and begin again where it has more partitions or somebody deleted it.

        Records under way are not judged then. Without an answer all stays as it is: that the cluster is away is
        measured already.
        """
        async with self._changing:
            gateways = list(self._clients)
            try:
                found = await asyncio.to_thread(ensure_topic, self._config, ",".join(gateways), self._clock)
            except KafkaException as error:
                if str(error) != self._topic_trouble:
                    log.warning("the topic cannot be looked at", topic=self._config.topic, error=error)
                self._topic_trouble = str(error)
                return
            self._topic_trouble = ""
            self._is_topic_doubtful = False
            if found.topic_id == self._topic_id and found.end_offsets.keys() == self._next_offsets.keys():
                return
            # New clients know it at once; the old ones would call partitions unknown until they look again.
            log.warning("the topic is another: beginning again", partitions=len(found.end_offsets))
            await self.close()
            self._ledger.forget()
            self._begin_with(found)
            self._add_missing(gateways)

    def _begin_with(self, found: FoundTopic) -> None:
        self._topic_id = found.topic_id
        self._next_offsets = dict(found.end_offsets)
        self._metrics.partitions.set(len(self._next_offsets))

    def _add_missing(self, gateways: Iterable[str]) -> None:
        for gateway in gateways:
            if gateway not in self._clients:
                self._add(gateway)
        self._metrics.gateways.set(len(self._clients))

    def send_round(self) -> None:
        """Send one record through every gateway, to its next partition."""
        now = self._clock.monotonic()
        partitions = sorted(self._next_offsets)
        for number, (gateway, client) in enumerate(self._clients.items()):
            if gateway in self._warming_up:
                continue
            if self._ledger.is_full:
                self._metrics.produce_failed(gateway)
                continue
            record = self._next_record(gateway)
            # Gateways begin at different partitions, so that each second sees several storage nodes.
            partition = partitions[(record.sequence + number) % len(partitions)]
            self._ledger.on_sent(record, partition, now)
            try:
                client.send(record, partition)
            except (BufferError, KafkaException) as error:
                self.on_failed(record, str(error))

    async def sweep(self) -> None:
        """Judge what is overdue, and bring the gauges up to date; first look at the topic if it seems gone."""
        if self._is_topic_doubtful:
            await self.follow_topic()
        overdue = self._ledger.sweep(self._clock.monotonic())
        if overdue:
            partitions = {each.partition for each in overdue}
            answering = {each for each in partitions if await self._answers(each)}
            for each in self._ledger.judge_overdue(overdue, answering):
                log.error("record lost", **each.record._asdict(), partition=each.partition)
        now = self._clock.monotonic()
        for gateway, sent_at in self._ledger.newest_read.items():
            self._metrics.freshness_seconds.labels(gateway).set(now - sent_at)
        self._metrics.unread.set(self._ledger.unread)

    async def close(self) -> None:
        clients = list(self._clients.values())
        self._clients.clear()
        self._warming_up.clear()
        for client in clients:
            await client.close()

    # --- what the clients' threads tell

    def on_acknowledged(self, record: RecordId, now: float) -> None:
        self._warming_up.discard(record.gateway)
        self._ledger.on_acknowledged(record, now)
        if self._failing.pop(record.gateway, None):
            log.info("produce works again", gateway=record.gateway)

    def on_failed(self, record: RecordId, reason: str) -> None:
        self._warming_up.discard(record.gateway)
        self._is_topic_doubtful = self._is_topic_doubtful or reason in _TOPIC_GONE
        self._ledger.on_failed(record)
        if self._failing.get(record.gateway) != reason and record.gateway in self._clients:
            self._failing[record.gateway] = reason
            log.warning("produce fails", gateway=record.gateway, reason=reason)

    def on_read(self, gateway: str, record: RecordId, partition: int, offset: int, now: float) -> None:
        self._next_offsets[partition] = max(self._next_offsets.get(partition, 0), offset + 1)
        self._ledger.on_read(gateway, record, partition, offset, now)

    def _add(self, gateway: str) -> None:
        log.info("gateway watched", gateway=gateway)
        client = GatewayClient(
            gateway,
            run=self._run,
            topic=self._config.topic,
            timeout_ms=self._config.timeout_ms,
            client_settings=self._config.client_settings,
            clock=self._clock,
            listener=self,
        )
        self._metrics.add_gateway(gateway)
        self._ledger.add_reader(gateway, self._clock.monotonic())
        self._failing.pop(gateway, None)
        client.start(self._next_offsets)
        self._clients[gateway] = client
        # The ledger does not know of this record; from its end on, however it ends, everything counts.
        self._warming_up.add(gateway)
        client.send(self._next_record(gateway), min(self._next_offsets))

    def _next_record(self, gateway: str) -> RecordId:
        sequence = self._sequences[gateway] = self._sequences.get(gateway, -1) + 1
        return RecordId(gateway, sequence)

    async def _answers(self, partition: int) -> bool:
        """Whether some gateway can read the partition's log."""
        for client in list(self._clients.values()):
            if await asyncio.to_thread(client.answers_for, partition, self._config.timeout_ms / 1000):
                return True
        return False


async def wait_for(event: asyncio.Event, seconds: float) -> None:
    """Until the event, or for so long."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
