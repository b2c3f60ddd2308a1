"""The cluster as a test uses it."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from barnabas.testing.failures import TimedOut
from barnabas.testing.fault import Fault
from barnabas.testing.process import POLL_SECONDS, ClusterProcess
from barnabas.testing.record import Record
from barnabas.testing.topic import Topic

if TYPE_CHECKING:
    from barnabas.testing.kafka_client import KafkaClient, Lag, Sendable, Text, Where

_NAME_MAX: Final = 200
"""Kafka allows 249 characters in a topic's name; a random ending follows."""


class Cluster(ClusterProcess):
    """A real cluster: `barnabas up` on ports of its own, with its data in a temporary folder.

    `bootstrap_servers` (host:port) is what a Kafka client is given. Every wait raises TimedOut, an AssertionError that
    says what there was instead.
    """

    _client: KafkaClient | None = None

    def close(self) -> None:
        """End whatever runs and remove every trace, the data too unless it is to be kept."""
        if self._client is not None:
            self._client.close()
            self._client = None
        super().close()

    # --- topics

    def topic(self, name: str) -> Topic:
        """A handle to a topic, whether it is there yet or not. Asks nobody."""
        return Topic(name, self)

    def create_topic(
        self,
        name: str = "",
        *,
        partitions: int = 1,
        config: Mapping[str, str] | None = None,
        prefix: str = "test",
    ) -> Topic:
        """A new topic; without a name it gets one that begins with `prefix` and that nobody else has."""
        if not name:
            stem = re.sub(r"[^a-zA-Z0-9._-]+", "-", prefix)[:_NAME_MAX]
            name = f"{stem}-{uuid.uuid4().hex[:8]}"
        self._kafka.create_topic(name, partitions, config or {})
        return Topic(name, self)

    def delete_topic(self, name: str) -> None:
        """Delete a topic; one that is not there is deleted already."""
        self._kafka.delete_topic(name)

    @contextmanager
    def temporary_topic(self, name: str = "", **options: Any) -> Iterator[Topic]:
        """`create_topic`, deleted at the end of the context."""
        topic = self.create_topic(name, **options)
        try:
            yield topic
        finally:
            self.delete_topic(topic)

    # --- records

    def produce(
        self,
        topic: str,
        values: Iterable[Sendable],
        *,
        partition: int = -1,
        headers: Sequence[tuple[str, Text]] = (),
        timestamp_ms: int = 0,
        timeout: float = 10.0,
    ) -> list[Record]:
        """Send values, or (key, value) pairs, and return the records with their offsets once all are acknowledged.

        Without `partition` the key chooses; without `timestamp_ms` records carry the time of now, which is the
        cluster's where `advance` has moved that.
        """
        if isinstance(values, str | bytes):
            values = [values]
        return self._kafka.produce(
            topic,
            values,
            partition=partition,
            headers=list(headers),
            timestamp_ms=timestamp_ms or self._now_ms(),
            timeout=timeout,
        )

    def records(self, topic: str, *, where: Where | None = None, timeout: float = 10.0) -> list[Record]:
        """All records that are in the topic now (those for which `where` holds), by partition and offset."""
        return self._kafka.read(topic, 0, timeout=timeout, where=where)

    def wait_for_records(
        self, topic: str, count: int = 1, *, timeout: float = 10.0, where: Where | None = None
    ) -> list[Record]:
        """Wait until at least `count` records (for which `where` holds) are in the topic, and return all there are.

        The topic is read from its beginning, and by nobody's group. More than `count` come back where there are more,
        so `assert len(...) == count` notices a record that was written twice.
        """
        return self._kafka.read(topic, count, timeout=timeout, where=where)

    # --- groups

    def group_lag(self, group: str, topic: str | None = None) -> Lag:
        """How many records the group still has to read, by (topic, partition).

        Of `topic` all partitions are there, also those for which nothing is committed yet.
        """
        return self._kafka.group_lag(group, topic)

    def wait_for_group(
        self,
        group: str,
        *,
        topic: str | None = None,
        lag: int | None = 0,
        members: int | None = None,
        timeout: float = 10.0,
    ) -> Lag:
        """Wait until the group has `members` and is at most `lag` records behind in all; returns its lag.

        With lag=None only the members count; with members=None only the lag. Offsets count once they are committed.
        """
        deadline = time.monotonic() + timeout
        while True:
            found_members = self._kafka.group_members(group) if members is not None else None
            found = self.group_lag(group, topic) if lag is not None else {}
            is_read = lag is None or (bool(found) and sum(found.values()) <= lag)
            if is_read and found_members == members:
                return found
            if time.monotonic() > deadline:
                shown = "" if members is None else f", members {found_members}, not {members}"
                raise TimedOut(f"group {group} after {timeout:g} s: lag {found or 'unknown'}{shown}")
            time.sleep(POLL_SECONDS)

    # --- faults

    def fault(
        self,
        api: str | Sequence[str] = (),
        *,
        topic: str = "",
        group: str = "",
        client_id: str = "",
        error: str | int = "",
        drop: bool = False,
        hang: bool = False,
        delay: float = 0.0,
        after: bool = False,
        times: int = 0,
        probability: float = 1.0,
        seed: int = 0,
    ) -> Fault:
        """Inject a fault into requests of `api` (such as "Produce"; several; none means all) until it is removed.

        `topic`, `group` and `client_id` choose the requests, by name or pattern (`orders-*`). One of these happens:
        `error` answers with an error code of Kafka's ("NOT_LEADER_OR_FOLLOWER", or 6) for everything in the request;
        `drop` closes the connection without an answer; `hang` gives no answer and leaves the connection open. `delay`
        waits that many seconds first, or is all that happens. With `after` the work is done before, so that the answer
        alone is lost. `times` limits the hits; `probability` and `seed` leave it to a chance that repeats itself.
        """
        from barnabas.testing.kafka_client import CLIENT_ID

        apis = [api] if isinstance(api, str) else list(api)
        document = {
            "apis": apis,
            "topic": topic,
            "group": group,
            "client_id": client_id,
            "spared_client_id": "" if client_id == CLIENT_ID else CLIENT_ID,
            "error": str(error),
            "drop": drop,
            "hang": hang,
            "delay_seconds": float(delay),
            "after": after,
            "times": times,
            "probability": float(probability),
            "seed": seed,
        }
        self.harmed = True
        number = json.loads(self._ask("POST", "/faults", document))["fault_id"]
        what = f"the fault in {', '.join(apis) or 'every API'}"
        return Fault(what, lambda: self._fault_hits(number), lambda: self._remove_fault(number))

    def heal(self) -> None:
        """Take back all harm that is still being done: pauses, faults, services that are down or all of them."""
        if not self.ready_line():
            self.start()
        self.resume()
        for service in self.services().values():
            if service.pid is None:
                self._ask("POST", f"/services/{service.name}/start")
        for fault in json.loads(self._ask("GET", "/faults")):
            self._remove_fault(fault["fault_id"])
        self.wait_ready()
        if self.advanced_ms:
            self._take_time_back()
        self.harmed = False

    def _now_ms(self) -> int:
        """What a record's timestamp is to be; 0 leaves it to the client, whose clock is the machine's."""
        return round(time.time() * 1000) + self.advanced_ms if self.advanced_ms else 0

    def _fault_hits(self, number: int) -> int:
        faults = json.loads(self._ask("GET", "/faults"))
        return next((fault["hits"] for fault in faults if fault["fault_id"] == number), 0)

    def _remove_fault(self, number: int) -> int:
        return int(json.loads(self._ask("DELETE", f"/faults/{number}"))["hits"])

    @property
    def _kafka(self) -> KafkaClient:
        if self._client is None:
            from barnabas.testing.kafka_client import KafkaClient

            self._client = KafkaClient(self.bootstrap_servers)
        return self._client
