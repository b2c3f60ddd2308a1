"""What is counted of streams, and how it is shown."""

from __future__ import annotations

import pytest

from barnabas.links.stream_counts import MessageCounts, StorageStreamCounts
from barnabas.links.stream_metrics import StreamCollector


def test_items_and_bytes_of_messages() -> None:
    counts = MessageCounts()
    counts.count([1])
    counts.count([1, 2, 3])
    assert (sum(counts.items.counts), counts.items.sum) == (2, 4)
    assert counts.counting(bytes.decode)(b"abc") == "abc"
    assert counts.counting_encoder(str.encode)("de") == b"de"
    assert counts.bytes == 5


@pytest.mark.parametrize("end", ["client", "server"])
def test_both_streams_have_both_directions(end: str) -> None:
    families = {family.name: family for family in StreamCollector(end, StorageStreamCounts()).collect()}
    labels = {
        (sample.labels["stream"], sample.labels["direction"], sample.labels["end"])
        for sample in families["barnabas_stream_bytes"].samples
    }
    assert labels == {(stream, way, end) for stream in ("append", "fetch") for way in ("sent", "received")}
    assert ("barnabas_stream_waiting_requests" in families) == (end == "client")


def test_streams_that_are_gone_wait_for_nothing() -> None:
    counts = StorageStreamCounts()

    class Stream:
        waiting_requests = 3
        queued_bytes = 10

    def shown(name: str) -> float:
        (family,) = (each for each in StreamCollector("client", counts).collect() if each.name == name)
        (value,) = (each.value for each in family.samples if each.labels["stream"] == "append")
        return float(value)

    before = shown("barnabas_stream_waiting_requests")
    stream = Stream()
    counts.appends.open.add(stream)
    assert shown("barnabas_stream_waiting_requests") == before + 3
    del stream
    assert shown("barnabas_stream_waiting_requests") == before
