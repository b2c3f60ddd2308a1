"""What is measured of requests: the stages of their time, the errors in their answers, and whose fault they are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from gateway_harness import FakeStream, Gateway, request_frame
from prometheus_client.metrics_core import Metric

from barnabas.gateway import request_times
from barnabas.gateway.answers.cluster_faults import error_codes
from barnabas.gateway.metrics import RequestMetrics
from barnabas.gateway.request_times import RequestTimes, run_measured
from barnabas.kernel.errors import ErrorCode
from barnabas.links.errors import Unreachable
from barnabas.records.record import encode_batch

PRODUCE, METADATA = 0, 3
PREFIX = "kafka_network_requestmetrics_"


class Seconds:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> Iterator[Seconds]:
    clock = Seconds()
    monkeypatch.setattr(request_times, "perf_counter", clock)
    return clock


def samples(metrics: RequestMetrics) -> dict[tuple[str, ...], float]:
    """Value by (sample name, label values...)."""
    families: list[Metric] = list(metrics.collect())
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }


# --- stages


async def test_time_in_awaits_is_not_work(seconds: Seconds) -> None:
    remote: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def work() -> str:
        seconds.now += 2
        answer = await remote
        seconds.now += 3
        return answer

    times = RequestTimes(received=90.0)
    task = asyncio.create_task(run_measured(work(), times))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    seconds.now += 10
    remote.set_result("done")
    assert await task == "done"
    assert (times.started, times.answered, times.local_seconds) == (100.0, 115.0, 5.0)


async def test_errors_and_cancellations_reach_the_work(seconds: Seconds) -> None:
    seen: list[str] = []
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def work() -> None:
        try:
            await never
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    times = RequestTimes()
    task = asyncio.create_task(run_measured(work(), times))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (seen, times.answered) == (["cancelled"], 0.0)

    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await run_measured(fail(), RequestTimes())


def test_the_stages_add_up_to_the_total() -> None:
    metrics, times = RequestMetrics(), RequestTimes(received=10.0, request_bytes=70)
    times.api_key, times.api_version = PRODUCE, 9
    times.started, times.answered, times.local_seconds = 10.001, 10.011, 0.004
    metrics.observe(times, written=10.012, sent=10.015)
    found = samples(metrics)
    stages = {
        "totaltimems": 15,
        "requestqueuetimems": 1,
        "localtimems": 4,
        "remotetimems": 6,
        "throttletimems": 0,
        "responsequeuetimems": 1,
        "responsesendtimems": 3,
    }
    for stage, milliseconds in stages.items():
        assert found[f"{PREFIX}{stage}_sum", "Produce"] == pytest.approx(milliseconds)
        assert found[f"{PREFIX}{stage}_count", "Produce"] == 1
    assert found[f"{PREFIX}requests_total", "Produce", "9"] == 1
    assert found[f"{PREFIX}requestbytes_total", "Produce"] == 70
    assert found["barnabas_gateway_failed_requests_total", "Produce"] == 0


# --- errors


def test_error_codes_are_found_at_any_depth() -> None:
    body = {
        "error_code": 0,
        "topics": [
            {"name": "a", "error_code": 3, "partitions": [{"error_code": ErrorCode.not_coordinator}]},
            {"name": "b", "error_code": 0, "replicas": [1, 2], "partitions": ()},
        ],
        "coordinators": ({"error_code": 15},),
    }
    assert sorted(error_codes(body)) == [3, 15, 16]


@pytest.mark.parametrize(
    ("code", "failed"),
    [
        (ErrorCode.kafka_storage_error, 1),
        (ErrorCode.request_timed_out, 1),
        (ErrorCode.unknown_server_error, 1),
        (ErrorCode.unknown_topic_or_partition, 0),
        (ErrorCode.corrupt_message, 0),
    ],
)
def test_only_the_clusters_faults_are_failures(code: ErrorCode, failed: int) -> None:
    metrics, times = RequestMetrics(), RequestTimes(1.0)
    times.api_key = times.api_version = PRODUCE
    times.answered = 2.0
    for each in (code, code, ErrorCode.none):
        times.count_error(each)
    metrics.observe(times, 2.0, 2.0)
    found = samples(metrics)
    assert found[f"{PREFIX}errors_total", "Produce", code.name.upper()] == 2
    assert found["barnabas_gateway_failed_requests_total", "Produce"] == failed


async def times_of(gateway: Gateway, frame: bytes) -> RequestTimes:
    times = RequestTimes()
    await gateway.dispatcher.serve(frame, gateway.client, times)
    return times


async def test_answers_tell_their_errors() -> None:
    gateway = Gateway()
    gateway.node(1, appends=FakeStream(lambda _: Unreachable("away")))
    records = encode_batch([(1, None, b"a", ())])
    data = [{"name": "orders", "partition_data": [{"index": 0, "records": records}]}]
    frame = request_frame(PRODUCE, 9, {"acks": -1, "timeout": 1_000, "topic_data": data})
    produced = await times_of(gateway, frame)
    assert produced.errors == [ErrorCode.not_leader_or_follower]
    assert (produced.api_key, produced.api_version) == (PRODUCE, 9)
    assert produced.answered > 0

    unknown = await times_of(gateway, request_frame(METADATA, 12, {"topics": [{"name": "no-such"}]}))
    assert unknown.errors == [ErrorCode.leader_not_available], "it is being made"
    known = await times_of(gateway, request_frame(METADATA, 12, {"topics": [{"name": "bills"}]}))
    assert known.errors is None


async def test_a_version_that_is_not_served_makes_no_series_of_its_own() -> None:
    gateway = Gateway()
    frame = b"\x00\x12\x03\xe7" + bytes(4) + b"\x00\x04test\x00"  # ApiVersions v999
    times = await times_of(gateway, frame)
    metrics = RequestMetrics()
    metrics.observe(times, 1.0, 1.0)
    found = samples(metrics)
    assert found[f"{PREFIX}errors_total", "ApiVersions", "UNSUPPORTED_VERSION"] == 1
    assert not [key for key in found if key[0] == f"{PREFIX}requests_total"]
