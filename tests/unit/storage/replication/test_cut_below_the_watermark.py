"""A replica takes back more than it was asked for, and than is committed, since a batch of its log is damaged."""

from __future__ import annotations

from pathlib import Path

from nodes_in_one_process import run_nodes
from storage_harness import batch
from test_nodes_replicate import append, committed

from barnabas.log.segments.segment import LOG_SUFFIX
from barnabas.records.batch import iterate_headers

LENGTH = 8
"""Where a batch's length begins in its header."""


def damage(path: Path, number: int) -> None:
    data = bytearray(path.read_bytes())
    position, _ = list(iterate_headers(bytes(data)))[number]
    data[position + LENGTH] = 0x20
    path.write_bytes(data)


async def test_it_copies_again_what_is_committed(tmp_path: Path) -> None:
    """What its leader does not have begins behind the damage, in a segment of which the end cannot be read."""
    async with run_nodes(tmp_path, 3) as nodes:
        for number in range(4):
            end = append(nodes, b"%d" % number)
        await committed(nodes, end)
        await nodes.until_equal()
        nodes.elect(2, (1, 2, 3), only=(2, 3))  # node 1 has not heard of it
        replica = nodes.replica(1)
        opened = replica.log
        assert opened is not None
        damaged = Path(opened.segments[0].path(LOG_SUFFIX))
        for _ in range(2):
            replica.appending.append(batch(b"lost"), 0, 1)
        opened.roll()
        replica.appending.append(batch(b"lost"), 0, 1)
        opened.flush()
        directories = nodes.running[1].harness.directories
        directories.write_checkpoints(*directories.paths, {("events", 0): replica.high_watermark})
        assert replica.high_watermark == 4
        await nodes.stop(1, crash=True)
        damage(damaged, 3)
        nodes.set_isr((2, 3))
        for number in range(6, 9):
            end = append(nodes, b"%d" % number)
        await committed(nodes, end)
        await nodes.start(1)
        await nodes.until_equal()
        assert nodes.bytes_of(1) == nodes.bytes_of(2)
        assert nodes.replica(1).high_watermark == end
        await nodes.stop(1, crash=True)
        await nodes.start(1)
        await nodes.until_equal()
        assert nodes.bytes_of(1) == nodes.bytes_of(2)
