"""Kafka's framing: each message is a 4-byte big-endian length and that many bytes.

Memory grows with the bytes that have arrived, never with a length that was only claimed.
"""

from __future__ import annotations

import struct
from typing import Final

_LENGTH: Final = struct.Struct(">i")
LENGTH_BYTES: Final = _LENGTH.size


class FrameError(Exception):
    """The stream cannot be a Kafka client's: the length is negative or above the limit."""


class FrameReader:
    """Owns the bytes of one connection that are not a whole frame yet. Does no I/O."""

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._chunks: list[bytes] = []
        self.buffered_bytes = 0
        self._needed = LENGTH_BYTES
        """How many buffered bytes the next look is worth: a whole length, then a whole frame."""

    def feed(self, data: bytes) -> list[bytes]:
        """Take what arrived and return the frames that are complete, without their length fields.

        Raises FrameError; the reader must not be used after that.
        """
        if not self._chunks and len(data) >= LENGTH_BYTES:
            # Who waits for each answer sends one whole frame at a time.
            (length,) = _LENGTH.unpack_from(data)
            if length == len(data) - LENGTH_BYTES and length <= self._frame_bytes_max:
                return [data[LENGTH_BYTES:]]
        self._chunks.append(data)
        self.buffered_bytes += len(data)
        if self.buffered_bytes < self._needed:
            return []
        frames: list[bytes] = []
        if len(self._chunks) == 1:
            buffer = data
        elif self._needed == LENGTH_BYTES:
            buffer = b"".join(self._chunks)
        else:
            frame, buffer = self._whole_frame()
            frames.append(frame)
        more, position = self._split(buffer)
        rest = buffer[position:] if position else buffer
        self._chunks = [rest] if rest else []
        self.buffered_bytes = len(rest)
        return frames + more if frames else more

    def clear(self) -> None:
        """Let the bytes go: no more will come."""
        self._chunks.clear()
        self.buffered_bytes = 0

    def _whole_frame(self) -> tuple[bytes, bytes]:
        """(the frame that ends in the last of several chunks, what stands behind it); it may be large: copied once."""
        first, *between, last = self._chunks
        end = len(last) - (self.buffered_bytes - self._needed)
        frame = b"".join([memoryview(first)[LENGTH_BYTES:], *between, memoryview(last)[:end]])
        return frame, last[end:]

    def _split(self, buffer: bytes) -> tuple[list[bytes], int]:
        frames: list[bytes] = []
        position, end = 0, len(buffer)
        self._needed = LENGTH_BYTES
        while end - position >= LENGTH_BYTES:
            (length,) = _LENGTH.unpack_from(buffer, position)
            if not 0 <= length <= self._frame_bytes_max:
                raise FrameError(f"frame length {length} is not between 0 and {self._frame_bytes_max}")
            frame_end = position + LENGTH_BYTES + length
            if frame_end > end:
                self._needed = frame_end - position
                break
            frames.append(buffer[position + LENGTH_BYTES : frame_end])
            position = frame_end
        return frames, position
