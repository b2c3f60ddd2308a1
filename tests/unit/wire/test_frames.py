"""Frames come out as they were sent, however the bytes arrive; no length takes memory before its bytes came."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.wire.frames import FrameError, FrameReader

frames = st.lists(st.one_of(st.binary(max_size=20), st.binary(min_size=200, max_size=300)), max_size=6)
sizes = st.lists(st.integers(1, 130), min_size=1, max_size=60)


def stream_of(sent: list[bytes]) -> bytes:
    return b"".join(struct.pack(">i", len(frame)) + frame for frame in sent)


@given(frames, sizes, st.integers(0, 40))
def test_frames_come_out_as_they_were_sent(sent: list[bytes], cuts: list[int], unfinished: int) -> None:
    stream = stream_of(sent) + (struct.pack(">i", 50) + bytes(46))[:unfinished]
    reader = FrameReader(1_000)
    came: list[bytes] = []
    position = 0
    for number in range(len(stream)):
        if position >= len(stream):
            break
        size = cuts[number % len(cuts)]
        came += reader.feed(stream[position : position + size])
        position += size
        whole = stream_of(came)
        assert reader.buffered_bytes == min(position, len(stream)) - len(whole)
    assert came == sent
    assert reader.buffered_bytes == unfinished


@pytest.mark.parametrize("length", [-1, 101, 2**31 - 1])
def test_a_length_that_cannot_be_is_refused_as_soon_as_it_is_there(length: int) -> None:
    whole = FrameReader(100)
    with pytest.raises(FrameError):
        whole.feed(struct.pack(">i", length))
    in_pieces = FrameReader(100)
    data = stream_of([b"before"]) + struct.pack(">i", length)
    assert in_pieces.feed(data[:8]) == []
    assert in_pieces.feed(data[8:12]) == [b"before"]
    with pytest.raises(FrameError):
        in_pieces.feed(data[12:])
    behind_a_large_one = FrameReader(100)
    assert behind_a_large_one.feed(struct.pack(">i", 100) + bytes(60)) == []
    with pytest.raises(FrameError):
        behind_a_large_one.feed(bytes(40) + struct.pack(">i", length))


def test_a_claimed_length_takes_no_memory() -> None:
    reader = FrameReader(2**30)
    assert reader.feed(struct.pack(">i", 2**30) + b"little") == []
    assert reader.buffered_bytes == 10
