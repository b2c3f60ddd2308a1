"""Prometheus metrics of the coalesced streams of one service (see docs/metrics.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from barnabas.kernel.histograms import histogram_family
from barnabas.links.stream_counts import StorageStreamCounts, StreamCounts


class StreamCollector(Collector):
    """Shows the streams of one end: `client` at gateways and coordinators, `server` at storage nodes."""

    def __init__(self, end: str, counts: StorageStreamCounts) -> None:
        self._end = end
        self._streams: tuple[tuple[str, StreamCounts], ...] = (
            ("append", counts.appends),
            ("fetch", counts.fetches),
        )

    def describe(self) -> Iterable[Metric]:
        """Nothing: registering must not need a stream."""
        return ()

    def collect(self) -> Iterator[Metric]:
        directions = [
            ([stream, self._end, direction], messages)
            for stream, counts in self._streams
            for direction, messages in (("sent", counts.sent), ("received", counts.received))
        ]
        labels = ["stream", "end", "direction"]
        yield histogram_family(
            "barnabas_stream_message_items",
            "Requests or results in one message",
            [(values, messages.items) for values, messages in directions],
            labels=labels,
        )
        size = CounterMetricFamily("barnabas_stream_bytes", "Bytes of messages", labels=labels)
        for values, messages in directions:
            size.add_metric(values, messages.bytes)
        yield size
        waits = CounterMetricFamily(
            "barnabas_stream_write_wait_seconds",
            "Seconds that writing messages took",
            labels=["stream", "end"],
        )
        for stream, counts in self._streams:
            waits.add_metric([stream, self._end], counts.write_wait_seconds)
        yield waits
        if self._end == "client":
            yield from self._of_clients()

    def _of_clients(self) -> Iterator[Metric]:
        waiting = GaugeMetricFamily(
            "barnabas_stream_waiting_requests", "Requests without a result", labels=["stream"]
        )
        queued = GaugeMetricFamily(
            "barnabas_stream_queued_bytes", "Bytes of requests not written yet", labels=["stream"]
        )
        breaks = CounterMetricFamily(
            "barnabas_stream_breaks", "Streams that broke while connected", labels=["stream"]
        )
        for stream, counts in self._streams:
            open_streams = list(counts.open)
            waiting.add_metric([stream], sum(each.waiting_requests for each in open_streams))
            queued.add_metric([stream], sum(each.queued_bytes for each in open_streams))
            breaks.add_metric([stream], counts.breaks)
        yield from (waiting, queued, breaks)
