"""One gateway's producer and consumer, each in a thread of its own; what happens is told to the event loop.

Only the protocol that everybody uses: librdkafka, with the gateway as the only address that it is given.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from barnabas.canary import limits, record
from barnabas.canary.core.ledger import RecordId
from barnabas.kernel.clock import Clock
from barnabas.kernel.logs import get_logger

CLIENT_ID: Final = "barnabas-canary"

log = get_logger("canary.client")


class Listener(Protocol):
    """Called on the event loop. Times are the clock's monotonic seconds."""

    def on_acknowledged(self, record: RecordId, now: float) -> None: ...

    def on_failed(self, record: RecordId, reason: str) -> None: ...

    def on_read(self, gateway: str, record: RecordId, partition: int, offset: int, now: float) -> None: ...


class GatewayClient:
    """Owns both clients of one gateway and their threads, from `start` to `close`."""

    def __init__(
        self,
        gateway: str,
        *,
        run: str,
        topic: str,
        timeout_ms: int,
        client_settings: Mapping[str, str],
        clock: Clock,
        listener: Listener,
    ) -> None:
        """Raises KafkaException for client settings that the library does not know."""
        self.gateway = gateway
        self._run = run
        self._topic = topic
        self._clock = clock
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._stopping = threading.Event()
        shared = client_config(gateway, client_settings)
        self._producer_config = {
            **shared,
            "enable.idempotence": True,
            "linger.ms": 0,
            "message.timeout.ms": timeout_ms,
        }
        self._producer = Producer(self._producer_config)
        # No group: nothing is committed, and no rebalance stands between a record and its reader.
        self._consumer = Consumer(
            {
                **shared,
                "group.id": CLIENT_ID,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 100,
                "allow.auto.create.topics": False,
            }
        )
        self._threads = [
            threading.Thread(target=self._run_producer, name=f"produce {gateway}", daemon=True),
            threading.Thread(target=self._run_consumer, name=f"fetch {gateway}", daemon=True),
        ]

    def start(self, next_offsets: Mapping[int, int]) -> None:
        """Read from `next_offsets`, the offset of each partition, and be ready to send."""
        self._consumer.assign(
            [TopicPartition(self._topic, partition, offset) for partition, offset in next_offsets.items()]
        )
        for thread in self._threads:
            thread.start()

    def send(self, record_id: RecordId, partition: int) -> None:
        """Never waits; the listener hears how it ended.

        Raises BufferError when too much is under way, and KafkaException while the library has ended its producer and
        there is no new one yet.
        """

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            del message
            if error is None:
                self._tell(self._listener.on_acknowledged, record_id, self._clock.monotonic())
            else:
                self._tell(self._listener.on_failed, record_id, error.name())

        value = record.encode(self._run, record_id)
        self._producer.produce(self._topic, value, partition=partition, on_delivery=on_delivery)

    def answers_for(self, partition: int, timeout_seconds: float) -> bool:
        """Whether the partition's log can be asked for its ends through this gateway. Blocks: for a thread."""
        try:
            return bool(
                self._consumer.get_watermark_offsets(
                    TopicPartition(self._topic, partition), timeout_seconds, cached=False
                )
            )
        except (KafkaException, RuntimeError):  # RuntimeError: it is closed already
            return False

    async def close(self) -> None:
        """End both threads; what was not acknowledged is given up."""
        self._stopping.set()
        for thread in self._threads:
            if thread.ident is not None:
                await asyncio.to_thread(thread.join)
        await asyncio.to_thread(self._consumer.close)

    def _run_producer(self) -> None:
        while not self._stopping.is_set():
            try:
                self._producer.poll(limits.POLL_SECONDS)
            except KafkaException as error:  # fatal: this producer sends nothing more
                log.warning(
                    "the client library ended its producer", gateway=self.gateway, reason=error.args[0].str()
                )
                ended, self._producer = self._producer, Producer(self._producer_config)
                _give_up(ended)
        _give_up(self._producer)

    def _run_consumer(self) -> None:
        while not self._stopping.is_set():
            message = self._consumer.poll(limits.POLL_SECONDS)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                log.debug("fetch", gateway=self.gateway, error=error.name())
                continue
            record_id = record.decode(self._run, message.value())
            if record_id is not None:
                position = message.partition(), message.offset()
                self._tell(
                    self._listener.on_read, self.gateway, record_id, *position, self._clock.monotonic()
                )

    def _tell(self, call: Callable[..., None], *arguments: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call, *arguments)


def _give_up(producer: Producer) -> None:
    """Let what is not acknowledged fail, and wait until that is told."""
    producer.purge()
    with contextlib.suppress(KafkaException):  # fatal, which is known
        producer.flush(limits.GIVE_UP_SECONDS_MAX)


def client_config(bootstrap: str, client_settings: Mapping[str, str]) -> dict[str, Any]:
    """What all of the canary's clients are made with; `client_settings` win."""
    return {
        "bootstrap.servers": bootstrap,
        "client.id": CLIENT_ID,
        "reconnect.backoff.ms": limits.RECONNECT_MS_MIN,
        "reconnect.backoff.max.ms": limits.RECONNECT_MS_MAX,
        "topic.metadata.refresh.interval.ms": 10_000,
        "log_level": 0,  # that a gateway is away is measured; a line for each attempt says no more
        **client_settings,
    }
