"""Whatever bytes a client sends, the dispatcher answers or closes the connection: it never fails and never hangs."""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
import tracemalloc
from typing import Any

import pytest
from gateway_harness import Gateway, decode_answer, request_frame, request_header
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.gateway.clients.connection import CloseConnection
from barnabas.gateway.handlers.table import HANDLERS
from barnabas.gateway.request import Request
from barnabas.wire.frame_check import ITEMS_MAX
from barnabas.wire.frames import FrameError, FrameReader
from barnabas.wire.requests import HEADER_TAGS_MAX, MalformedRequest, read_body, read_header
from barnabas.wire.schema import is_flexible

VERSIONS = [
    (key, version)
    for key, handler in sorted(HANDLERS.items())
    for version in range(handler.versions[0], handler.versions[1] + 1)
]
SECONDS_MAX = 5
INTERESTING = (0, 1, 2, 0x7F, 0x80, 0xFF)

each_version = pytest.mark.parametrize(("api_key", "version"), VERSIONS, ids=lambda value: str(value))


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> Gateway:
    """A gateway whose every call fails at once, and where time does not pass."""
    for name in ("IMAGE_WAIT_SECONDS", "REFUSAL_SECONDS_MIN", "REFUSAL_SECONDS_MAX"):
        monkeypatch.setattr(f"barnabas.gateway.limits.{name}", 0.0)
    monkeypatch.setattr("barnabas.gateway.inside.fetch_read.FetchRead._max_wait_ms", lambda _: 0)
    return Gateway()


async def serve(gateway: Gateway, frame: bytes) -> None:
    """Serve a frame; any exception but the two that close a connection fails the test, and so does one in a handler."""
    with contextlib.suppress(MalformedRequest, CloseConnection):
        async with asyncio.timeout(SECONDS_MAX):
            await gateway.dispatcher.serve(frame, gateway.client)
    assert not any(code == -1 for _, code in gateway.dispatcher._metrics._errors)


@pytest.mark.usefixtures("time_jumps")
@each_version
async def test_least_request_is_decoded_and_answered(gateway: Gateway, api_key: int, version: int) -> None:
    frame = request_frame(api_key, version, {})
    read_body(frame, read_header(frame))
    pieces = await gateway.dispatcher.serve(frame, gateway.client)
    if pieces is not None:
        decode_answer(api_key, version, pieces)
    # Nothing but produce without acknowledgement goes unanswered.
    assert pieces is not None or api_key == 0


@pytest.mark.usefixtures("time_jumps")
@each_version
async def test_truncations_and_trailing_bytes(gateway: Gateway, api_key: int, version: int) -> None:
    frame = request_frame(api_key, version, {})
    for length in range(len(frame)):
        await serve(gateway, frame[:length])
    for tail in (b"\0", b"\xff", b"\0\0\0\1", b"trailing"):
        await serve(gateway, frame + tail)


@pytest.mark.usefixtures("time_jumps")
@each_version
async def test_flipped_bytes_and_random_bodies(gateway: Gateway, api_key: int, version: int) -> None:
    randomness = random.Random(api_key * 100 + version)
    frame = request_frame(api_key, version, {})
    header = request_header(api_key, version)
    for _ in range(40):
        flipped = bytearray(frame)
        for _ in range(randomness.randint(1, 3)):
            flipped[randomness.randrange(len(flipped))] = randomness.choice(INTERESTING)
        await serve(gateway, bytes(flipped))
        await serve(gateway, header + randomness.randbytes(randomness.randint(0, 40)))
        await serve(gateway, header + bytes(randomness.choices(INTERESTING, k=randomness.randint(0, 60))))


@given(st.binary(max_size=80))
@settings(max_examples=200)
def test_random_frames(frame: bytes) -> None:
    async def run() -> None:
        await serve(Gateway(), frame)

    asyncio.run(run())


@each_version
def test_unknown_tagged_fields_are_skipped(api_key: int, version: int) -> None:
    if not is_flexible(api_key, version):
        return
    frame = request_frame(api_key, version, {})
    assert frame.endswith(b"\0"), "a flexible request ends with its tagged fields"
    # Two fields that nobody knows, at the end of the header and of the body.
    unknown = b"\x02\x64\x03abc\xe8\x07\x00"
    head = len(request_header(api_key, version))
    strange = frame[: head - 1] + unknown + frame[head:-1] + unknown
    assert read_body(strange, read_header(strange)) == read_body(frame, read_header(frame))


def test_unknown_tagged_fields_within_known_ones() -> None:
    plain = request_frame(1, 17, {"replica_state": {"replica_id": 7, "replica_epoch": 9}})
    # Known tag 1 holds replica id, replica epoch and tagged fields of its own: 13 bytes, of which the last is 0.
    known = b"\x01\x01\x0d" + struct.pack(">iq", 7, 9) + b"\0"
    assert plain.endswith(known)
    strange = plain[: -len(known)] + (
        b"\x02\x01\x11" + struct.pack(">iq", 7, 9) + b"\x01\x63\x02xy" + b"\x32\x01z"
    )
    assert read_body(strange, read_header(strange)) == read_body(plain, read_header(plain))


@pytest.mark.parametrize("claimed", [2**31 - 1, 2**24, ITEMS_MAX + 1, -2, -(2**31)])
def test_memory_does_not_follow_a_claimed_array(claimed: int) -> None:
    for api_key, version, body in (
        (3, 4, struct.pack(">i", claimed)),
        (19, 4, struct.pack(">i", claimed)),
        (3, 12, b"\xff\xff\xff\xff\x07"),
        (3, 12, b"\xff\xff\xff\xff\x7f"),
        (9, 8, b"\x02\x02g\xff\xff\xff\xff\x0f"),
    ):
        frame = request_header(api_key, version) + body + bytes(20)
        header = read_header(frame)
        tracemalloc.start()
        try:
            with pytest.raises(MalformedRequest):
                read_body(frame, header)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 200_000


def test_number_of_items_of_a_request_is_limited() -> None:
    # Each item is really there: empty names of two bytes.
    frame = request_header(3, 4) + struct.pack(">i", ITEMS_MAX + 1) + bytes(2 * (ITEMS_MAX + 1) + 1)
    with pytest.raises(MalformedRequest, match="items"):
        read_body(frame, read_header(frame))


def test_a_request_for_each_partition_of_a_large_cluster_is_read() -> None:
    count = ITEMS_MAX - 1
    row = struct.pack(">iqqi", 7, 0, -1, 1000)
    limits = struct.pack(">iiiibii", -1, 0, 1, 1 << 20, 0, 0, 0)
    body = limits + struct.pack(">ih", 1, 1) + b"x" + struct.pack(">i", count) + row * count + bytes(4)
    frame = request_header(1, 7) + body
    assert len(read_body(frame, read_header(frame)).topics[0].partitions) == count


def test_number_of_tagged_fields_of_a_header_is_limited() -> None:
    frame = request_frame(3, 12, {})
    start, end = frame[: len(request_header(3, 12)) - 1], frame[len(request_header(3, 12)) :]
    field = b"\x07\0"
    most = start + bytes([HEADER_TAGS_MAX]) + field * HEADER_TAGS_MAX + end
    assert read_body(most, read_header(most)) == read_body(frame, read_header(frame))
    more = start + bytes([HEADER_TAGS_MAX + 1]) + field * (HEADER_TAGS_MAX + 1) + end
    with pytest.raises(MalformedRequest, match="tagged fields"):
        read_body(more, read_header(more))


@pytest.mark.parametrize("length", [-1, -(2**31), 1_001, 2**31 - 1])
def test_frame_lengths_out_of_bounds(length: int) -> None:
    reader = FrameReader(1_000)
    with pytest.raises(FrameError):
        reader.feed(struct.pack(">i", length))


def test_memory_does_not_follow_a_claimed_frame_length() -> None:
    reader = FrameReader(2**31 - 1)
    tracemalloc.start()
    try:
        assert reader.feed(struct.pack(">i", 2**31 - 1) + b"some") == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000
    assert reader.buffered_bytes == 8


@given(st.lists(st.binary(max_size=50), max_size=8), st.data())
def test_any_chunking_gives_the_same_frames(frames: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    reader, got = FrameReader(1_000), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        got += reader.feed(stream[start:end])
    assert got == frames
    assert reader.buffered_bytes == 0


@given(st.binary(max_size=200), st.integers(1, 9))
def test_garbage_gives_the_same_frames_or_error_however_it_is_cut(stream: bytes, step: int) -> None:
    def read(size: int) -> tuple[list[bytes], bool]:
        reader, got = FrameReader(60), []
        try:
            for start in range(0, len(stream), size):
                got += reader.feed(stream[start : start + size])
        except FrameError:
            return got, True
        return got, False

    # In one piece the error hides the frames before it, so only the verdict is compared then.
    assert read(step) == read(1) or read(step)[1]
    assert read(step)[1] == read(1)[1] == read(1_000)[1]


async def test_unknown_api_closes_and_unsupported_version_is_answered(gateway: Gateway) -> None:
    with pytest.raises(CloseConnection, match="not served"):
        await gateway.dispatcher.serve(struct.pack(">hhih", 9999, 0, 1, -1), gateway.client)
    with pytest.raises(CloseConnection, match="not served"):
        await gateway.dispatcher.serve(struct.pack(">hhih", 38, 1, 1, -1), gateway.client)
    too_new = struct.pack(">hhih", 18, 99, 77, -1)
    pieces = await gateway.dispatcher.serve(too_new, gateway.client)
    assert isinstance(pieces, bytes)
    answer = decode_answer(18, 0, pieces)
    assert answer.error_code == 35
    always_shown = {key for key, handler in HANDLERS.items() if handler.advertised_when is None}
    assert {row.api_key for row in answer.api_keys} == always_shown


async def test_unsupported_version_of_an_api_without_a_place_for_errors_closes(gateway: Gateway) -> None:
    with pytest.raises(CloseConnection, match="v99 is not served"):
        await gateway.dispatcher.serve(struct.pack(">hhih", 19, 99, 77, -1), gateway.client)


async def test_failing_handler_is_answered(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_: Request) -> Any:
        raise ZeroDivisionError

    handler = HANDLERS[12]
    monkeypatch.setitem(gateway.dispatcher.__dict__, "_handlers", {12: type(handler)(12, (0, 4), fail)})
    answer = await gateway.ask(12, 4, {})
    assert answer.error_code == -1


@pytest.mark.parametrize(
    ("version", "name", "code"), [(10, "", 42), (11, "", 42), (12, None, 100), (13, None, 100)]
)
async def test_metadata_of_a_topic_without_a_name(
    gateway: Gateway, version: int, name: str | None, code: int
) -> None:
    topic = {"name": None, "topic_id": bytes(15) + b"1"}
    (answer,) = (await gateway.ask(3, version, {"topics": [topic]})).topics
    assert (answer.name, answer.error_code) == (name, code)


async def test_answer_that_cannot_be_encoded_is_an_error(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer_nonsense(_: Request) -> Any:
        return {"assignment": None}

    handler = HANDLERS[14]
    monkeypatch.setitem(
        gateway.dispatcher.__dict__, "_handlers", {14: type(handler)(14, (0, 5), answer_nonsense)}
    )
    assert (await gateway.ask(14, 5, {})).error_code == -1
