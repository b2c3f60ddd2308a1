"""A follower is to take back records while the directory of its log is away, and an empty one in its place."""

from __future__ import annotations

import shutil
from pathlib import Path

from nodes_in_one_process import run_nodes, until
from storage_harness import batch
from test_nodes_replicate import append, committed


async def test_what_is_taken_back_does_not_return_with_its_directory(tmp_path: Path) -> None:
    """Files that go by name are not found there; back in the log, they would stand behind what is committed since."""
    async with run_nodes(tmp_path, 3) as nodes:
        for number in range(4):
            end = append(nodes, b"%d" % number)
        await committed(nodes, end)
        await nodes.until_equal()
        nodes.elect(2, (2, 3), only=(2, 3))  # node 1 has not heard of it
        replica = nodes.replica(1)
        opened = replica.log
        assert opened is not None
        replica.appending.append(batch(b"lost"), 0, 1)
        opened.roll()
        for _ in range(2):
            replica.appending.append(batch(b"lost"), 0, 1)
        there, away = Path(opened.directory), tmp_path / "away"
        there.rename(away)
        there.mkdir()
        nodes.elect(2, (2, 3))
        await until(lambda: replica.following._state is not None and replica.following._state.refusals)
        shutil.rmtree(there)
        away.rename(there)
        end = append(nodes, b"next")
        await committed(nodes, end)
        await nodes.until_equal()
        assert not replica.is_offline
        await nodes.stop(1, crash=False)
        for _ in range(4):
            append(nodes, b"more")
        await nodes.start(1)
        await nodes.until_equal()
        assert nodes.bytes_of(1) == nodes.bytes_of(2)
