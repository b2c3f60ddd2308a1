"""What is measured of connections: how many there are, and how they are held back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from time import perf_counter
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from barnabas.gateway.clients.budget import ByteBudget
from barnabas.gateway.clients.held import Reason
from barnabas.gateway.clients.unread_answers import UnreadAnswers
from barnabas.kernel.pauses import PauseTimes

_PREFIX: Final = "kafka_server_socketservermetrics_connection_"
_GATEWAY: Final = "barnabas_gateway_"


class ConnectionMetrics(Collector):
    """Owns the counts of connections, by listener, and of their pauses."""

    def __init__(
        self, budget: ByteBudget, listeners: Iterable[str] = (), unread: UnreadAnswers | None = None
    ) -> None:
        self.reading = {reason: PauseTimes() for reason in Reason}
        """Sockets that are not read."""
        self.writing = PauseTimes()
        """Clients that do not take their answers."""
        self._budget = budget
        self._unread = UnreadAnswers() if unread is None else unread
        self._opened = dict.fromkeys(listeners, 0)
        self._closed = dict.fromkeys(listeners, 0)

    def on_opened(self, listener: str) -> None:
        """A client connected."""
        self._opened[listener] = self._opened.get(listener, 0) + 1

    def on_closed(self, listener: str) -> None:
        """A connection ended."""
        self._closed[listener] = self._closed.get(listener, 0) + 1

    def collect(self) -> Iterator[Metric]:
        labels = ["listener"]
        count = GaugeMetricFamily(f"{_PREFIX}count", "Open connections", labels=labels)
        created = CounterMetricFamily(f"{_PREFIX}creation", "Connections opened", labels=labels)
        closed = CounterMetricFamily(f"{_PREFIX}close", "Connections closed", labels=labels)
        for listener, opened in self._opened.items():
            ended = self._closed.get(listener, 0)
            count.add_metric([listener], opened - ended)
            created.add_metric([listener], opened)
            closed.add_metric([listener], ended)
        yield from (count, created, closed)
        for name, text, value in (
            (
                "unanswered_request_bytes",
                "Bytes of requests not answered yet, and of answers that wait",
                self._budget.used_bytes,
            ),
            ("unanswered_request_bytes_max", "Above it no socket is read", max(0, self._budget.bytes_max)),
            ("unread_answer_bytes", "Bytes of answers that clients do not take", self._unread.used_bytes),
            ("unread_answer_bytes_max", "Above it nothing is read for clients", self._unread.bytes_max),
        ):
            yield GaugeMetricFamily(_GATEWAY + name, text, value=value)
        paused = GaugeMetricFamily(
            f"{_GATEWAY}paused_connections", "Connections that are not being read now", labels=["reason"]
        )
        # Who does not read its answers is held back by nobody but its client; that is a pause of writing.
        reading: dict[tuple[str, ...], PauseTimes] = {
            (reason.value,): pauses
            for reason, pauses in self.reading.items()
            if reason is not Reason.ANSWERS_UNREAD
        }
        for values, pauses in reading.items():
            paused.add_metric(values, pauses.running)
        yield paused
        yield from _pauses("reading", ["reason"], reading)
        yield from _pauses("writing", [], {(): self.writing})


def _pauses(kind: str, labels: list[str], paused: Mapping[tuple[str, ...], PauseTimes]) -> Iterator[Metric]:
    now = perf_counter()
    count = CounterMetricFamily(
        f"{_GATEWAY}{kind}_pauses", f"Times that {kind} a connection was paused", labels=labels
    )
    seconds = CounterMetricFamily(
        f"{_GATEWAY}{kind}_paused_seconds", f"Seconds that {kind} connections was paused", labels=labels
    )
    for values, pauses in paused.items():
        count.add_metric(values, pauses.pauses)
        seconds.add_metric(values, pauses.seconds(now))
    yield from (count, seconds)
