"""The five codecs of a record batch. Decompression is bounded: a small batch cannot take all memory.

Only what needs the records inside a batch comes here (compacted topics' key check, timestamp lookup, tools); the
hot path carries compressed batches through untouched.
"""

from __future__ import annotations

import enum
import mmap
import struct

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.records.batch import Buffer

DECOMPRESSED_BYTES_MAX = 256 * 1024 * 1024
"""Bytes that one batch may unfold to, unless the caller names another limit."""

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_SIZE = 16
_XERIAL_BLOCK_BYTES = 32 * 1024

_LZ4_FRAME_HEADER = bytes.fromhex("04224d18604082")
"""Magic, version 1 with independent blocks, 64 KiB blocks, and the header's checksum over these two bytes."""
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_STORED = 0x80000000
_LZ4_END = bytes(4)

_CLEARED_BYTES_MAX = 1024 * 1024

_GROWTH = 8
"""First guess of the output: this many times the input."""


class Compression(enum.IntEnum):
    """Bits 0-2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: int, data: Buffer) -> bytes:
    """Compress the records part of a batch; snappy in the framing that Java clients write."""
    if codec == Compression.NONE:
        return bytes(data)
    import cramjam

    if codec == Compression.GZIP:
        return bytes(cramjam.gzip.compress(data))
    if codec == Compression.LZ4:
        return _compress_lz4_frame(memoryview(data))
    if codec == Compression.ZSTD:
        return bytes(cramjam.zstd.compress(data))
    if codec == Compression.SNAPPY:
        return _compress_xerial(memoryview(data))
    raise _unknown(codec)


class UnfoldsTooFar(KafkaError):
    """Data that unfolds to more bytes than were allowed."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(
            ErrorCode.corrupt_message,
            f"the record batch unfolds to more than {bytes_max} bytes; send smaller batches",
        )


def decompress(codec: int, data: Buffer, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """Undo `compress`, whoever wrote it.

    Raises UnfoldsTooFar for more than `bytes_max` bytes, KafkaError(CORRUPT_MESSAGE) for broken data, and
    KafkaError(UNSUPPORTED_COMPRESSION_TYPE) for a codec that does not exist.
    """
    return bytes(decompressed_view(codec, data, bytes_max))


def decompressed_view(codec: int, data: Buffer, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
    """As `decompress`, without a copy of what may be large: a copy keeps all other threads waiting."""
    if codec == Compression.NONE:
        return data
    if codec == Compression.SNAPPY:
        return _decompress_snappy(memoryview(data), bytes_max)
    if codec in (Compression.GZIP, Compression.LZ4, Compression.ZSTD):
        return _decompress_stream(codec, data, bytes_max)
    raise _unknown(codec)


def _decompress_stream(codec: int, data: Buffer, bytes_max: int) -> Buffer:
    """Into a buffer of a known size, doubled until the data fits or the limit is reached.

    The decoders of these formats stop where the output buffer ends, so memory never exceeds the limit.
    """
    import cramjam

    decoder = {Compression.GZIP: cramjam.gzip, Compression.LZ4: cramjam.lz4, Compression.ZSTD: cramjam.zstd}[
        Compression(codec)
    ]
    capacity = min(max(len(data) * _GROWTH, 4096), bytes_max)
    while True:
        # One byte more than is allowed, so that a full buffer is known to have been cut.
        output = _room(capacity + 1)
        try:
            written = int(decoder.decompress_into(data, output))
        except Exception as error:
            if not _is_out_of_room(error):
                raise _corrupt(f"{Compression(codec).name.lower()}: {error}") from error
            written = capacity + 1
        if written <= capacity:
            return memoryview(output)[:written]
        if capacity >= bytes_max:
            raise UnfoldsTooFar(bytes_max)
        capacity = min(capacity * 4, bytes_max)


def _room(size: int) -> bytearray | mmap.mmap:
    """Memory for `size` bytes. The kernel clears what is large when it is written to, which keeps nobody waiting."""
    return bytearray(size) if size <= _CLEARED_BYTES_MAX else mmap.mmap(-1, size)


def _is_out_of_room(error: Exception) -> bool:
    return "failed to write whole buffer" in str(error)


def _decompress_snappy(data: memoryview, bytes_max: int) -> bytes:
    if bytes(data[:8]) != _XERIAL_MAGIC:
        return _decompress_snappy_block(data, bytes_max)
    position, end = _XERIAL_HEADER_SIZE, len(data)
    blocks: list[bytes] = []
    total = 0
    while position < end:
        if position + 4 > end:
            raise _corrupt("snappy: a block's length is cut")
        (size,) = struct.unpack_from(">i", data, position)
        position += 4
        if size < 0 or position + size > end:
            raise _corrupt("snappy: a block reaches past the batch")
        blocks.append(_decompress_snappy_block(data[position : position + size], bytes_max - total))
        total += len(blocks[-1])
        position += size
    return b"".join(blocks)


def _decompress_snappy_block(block: memoryview, bytes_max: int) -> bytes:
    """Raw snappy says its output's size in front, so it can be refused before memory is taken."""
    import cramjam

    try:
        size = int(cramjam.snappy.decompress_raw_len(bytes(block)))
    except Exception as error:
        raise _corrupt(f"snappy: {error}") from error
    if size > bytes_max:
        raise UnfoldsTooFar(bytes_max)
    output = bytearray(size)
    try:
        written = int(cramjam.snappy.decompress_raw_into(bytes(block), output))
    except Exception as error:
        raise _corrupt(f"snappy: {error}") from error
    if written != size:
        raise _corrupt("snappy: a block is shorter than it says")
    return bytes(output)


def _compress_xerial(data: memoryview) -> bytes:
    import cramjam

    framed = bytearray(_XERIAL_MAGIC + struct.pack(">ii", 1, 1))
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(bytes(data[start : start + _XERIAL_BLOCK_BYTES])))
        framed += struct.pack(">i", len(block))
        framed += block
    return bytes(framed)


def _compress_lz4_frame(data: memoryview) -> bytes:
    """An lz4 frame of independent blocks: Java's decoder refuses blocks that refer to earlier ones."""
    import cramjam

    frame = bytearray(_LZ4_FRAME_HEADER)
    for start in range(0, len(data), _LZ4_BLOCK_BYTES):
        block = bytes(data[start : start + _LZ4_BLOCK_BYTES])
        packed = bytes(cramjam.lz4.compress_block(block, store_size=False))
        stored = len(packed) >= len(block)
        frame += struct.pack("<I", len(block) | _LZ4_STORED if stored else len(packed))
        frame += block if stored else packed
    return bytes(frame + _LZ4_END)


def _corrupt(what: str) -> KafkaError:
    return KafkaError(ErrorCode.corrupt_message, f"the record batch does not decompress ({what})")


def _unknown(codec: int) -> KafkaError:
    return KafkaError(ErrorCode.unsupported_compression_type, f"there is no compression codec {codec}")
