"""Two and three storage nodes replicate a partition: what is committed outlives whatever happens to one of them."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from pathlib import Path

import pytest
from nodes_in_one_process import Nodes, run_nodes, until
from storage_harness import batch

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.log.errors import WouldBlock
from barnabas.log.producers.producer_state import ProducerEntry
from barnabas.log.segments.open_segment import Cut
from barnabas.log.segments.segment import Segment
from barnabas.records.batch import iterate_headers


def append(nodes: Nodes, value: bytes, **producer: int) -> int:
    """Append as the leader; returns the offset after it."""
    replica = nodes.replica(nodes.record.leader)
    assert replica.log is not None
    info = replica.appending.append(batch(value, **producer), nodes.record.leader_epoch, -1)
    return info.last_offset + 1


async def committed(nodes: Nodes, offset: int) -> None:
    leader = nodes.record.leader
    await until(lambda: nodes.replica(leader).high_watermark >= offset, nodes.state)


@pytest.mark.parametrize("count", [2, 3])
async def test_followers_have_what_the_leader_has(tmp_path: Path, count: int) -> None:
    async with run_nodes(tmp_path, count) as nodes:
        for number in range(50):
            end = append(nodes, b"%d" % number)
        assert nodes.replica(1).high_watermark == 0
        await committed(nodes, end)
        await nodes.until_equal()
        assert len({nodes.bytes_of(node) for node in nodes.ids}) == 1


async def test_what_is_copied_to_a_replica_that_is_being_added_is_counted_apart(tmp_path: Path) -> None:
    async with run_nodes(tmp_path, 3) as nodes:
        nodes.record.adding_replicas[:] = [3]
        nodes.set_isr([1, 2])
        size = len(batch(b"v"))
        append(nodes, b"v")
        await nodes.until_equal()
        counts = {node: nodes.running[node].harness.replicas.counts for node in nodes.ids}
        assert [counts[node].replicated_bytes_in for node in nodes.ids] == [0, size, size]
        assert [counts[node].reassigned_bytes_in for node in nodes.ids] == [0, 0, size]
        assert (counts[1].replicated_bytes_out, counts[1].reassigned_bytes_out) == (2 * size, size)
        lags = {
            (node, str(leader))
            for node in nodes.ids
            for leader in nodes.running[node].harness.replicas.followed.by_node
        }
        assert lags == {(2, "1"), (3, "1")}


async def test_a_quiet_partition_says_nothing(tmp_path: Path) -> None:
    async with run_nodes(tmp_path, 2) as nodes:
        append(nodes, b"v")
        await nodes.until_equal()
        await asyncio.sleep(0.2)
        frames = nodes.cable.frames
        await asyncio.sleep(0.3)
        assert nodes.cable.frames == frames


async def test_a_new_leader_knows_its_producers(tmp_path: Path) -> None:
    """What one of them sends again is a duplicate, and a gap is refused: the state came with the records."""
    async with run_nodes(tmp_path, 2) as nodes:
        for sequence in range(3):
            append(nodes, b"v", producer_id=7, producer_epoch=0, base_sequence=sequence)
        await nodes.until_equal()
        nodes.elect(2, (1, 2))
        assert append(nodes, b"v", producer_id=7, producer_epoch=0, base_sequence=2) == 3
        with pytest.raises(KafkaError) as caught:
            append(nodes, b"v", producer_id=7, producer_epoch=0, base_sequence=4)
        assert caught.value.code is ErrorCode.out_of_order_sequence_number
        assert append(nodes, b"v", producer_id=7, producer_epoch=0, base_sequence=3) == 4
        await nodes.until_equal()
        assert [_sequences(nodes, node) for node in nodes.ids] == [[0, 1, 2, 3]] * 2


async def test_what_a_deposed_leader_alone_had_is_forgotten_with_its_sequences(tmp_path: Path) -> None:
    async with run_nodes(tmp_path, 3) as nodes:
        append(nodes, b"v", producer_id=7, producer_epoch=0, base_sequence=0)
        await nodes.until_equal()
        nodes.elect(2, (2, 3), only=(2, 3))  # node 1 has not heard of it
        old = nodes.replica(1)
        assert old.is_leader
        for sequence in (1, 2):
            old.appending.append(
                batch(b"lost", producer_id=7, producer_epoch=0, base_sequence=sequence), 0, -1
            )
        assert append(nodes, b"kept", producer_id=7, producer_epoch=0, base_sequence=1) == 2
        await until(lambda: nodes.end(3) == 2, nodes.state)
        assert old.high_watermark == 1
        nodes.elect(2, (2, 3))
        await nodes.until_equal()
        assert len({nodes.bytes_of(node) for node in nodes.ids}) == 1
        assert _sequences(nodes, 1) == [0, 1]
        nodes.elect(1, (1, 2, 3))
        assert append(nodes, b"next", producer_id=7, producer_epoch=0, base_sequence=2) == 3


def _sequences(nodes: Nodes, node: int) -> list[int]:
    opened = nodes.replica(node).log
    assert opened is not None
    entry: ProducerEntry = opened.producer_state.producers[7]
    return [each.last_sequence for each in entry.batches]


@pytest.mark.parametrize("crash", [False, True])
async def test_a_node_that_was_away_catches_up(tmp_path: Path, crash: bool) -> None:
    async with run_nodes(tmp_path, 3) as nodes:
        append(nodes, b"before")
        await nodes.until_equal()
        await nodes.stop(1, crash=crash)
        nodes.elect(2, (2, 3))
        for number in range(20):
            append(nodes, b"%d" % number)
        await nodes.until_equal()
        await nodes.start(1)
        await nodes.until_equal()
        assert len({nodes.bytes_of(node) for node in nodes.ids}) == 1


async def test_followers_hear_of_what_could_not_be_read_while_their_leader_was_truncated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader that still takes back what it had to as a follower shows nothing of its log meanwhile."""
    async with run_nodes(tmp_path, 3) as nodes:
        append(nodes, b"v")
        await nodes.until_equal()
        await nodes.stop(3, crash=False)
        nodes.set_isr((1, 2))
        append(nodes, b"v")
        await committed(nodes, append(nodes, b"v"))
        nodes.elect(2, (1, 2), only=[2])
        nodes.replica(1).appending.append(batch(b"lost"), 0, -1)
        go, begun = threading.Event(), []
        cut_at = Segment.cut_at

        def held(segment: Segment, cut: Cut) -> None:
            begun.append(cut)
            go.wait(20)
            cut_at(segment, cut)

        monkeypatch.setattr(Segment, "cut_at", held)
        nodes.elect(2, (1, 2))
        await until(lambda: begun)
        nodes.elect(1, (1, 2))
        await nodes.start(3)
        session = nodes.replica(1).followers
        await until(lambda: any(each.node_id == 3 for each in session), nodes.state)
        await asyncio.sleep(0.02)
        assert nodes.end(3) == 1
        go.set()
        await until(lambda: nodes.end(3) == 3, nodes.state)


class Storm:
    """Chance appends, elects, cuts, kills and starts; what was committed must stay."""

    def __init__(self, nodes: Nodes, chance: random.Random) -> None:
        self.nodes = nodes
        self.chance = chance
        self.committed = b""
        """What was below a leader's high watermark."""
        self.number = 0

    def append(self) -> None:
        replica = self.nodes.replica(self.nodes.record.leader)
        assert replica.log is not None
        queue = replica.appending._queue
        if not replica.is_leader or queue is None or queue.items:
            return
        with contextlib.suppress(WouldBlock):
            for _ in range(self.chance.randint(1, 5)):
                append(self.nodes, b"%d-" % self.number + bytes(self.chance.choice((1, 200, 5_000))))
                self.number += 1

    def note(self) -> None:
        """Whatever is committed is there for good: it must be a beginning of what is committed later."""
        nodes = self.nodes
        leader = nodes.replica(nodes.record.leader)
        assert leader.log is not None
        found = b""
        offset = 0
        while offset < leader.high_watermark:
            data = leader.log.read(offset, 1 << 20, upper_bound_offset=leader.high_watermark)
            if not data:
                return  # it still takes back what it could not keep as a follower, and shows nothing meanwhile
            found += data
            offset = [header for _, header in iterate_headers(data)][-1].next_offset
        shorter = min(len(found), len(self.committed))
        assert found[:shorter] == self.committed[:shorter]
        self.committed = max(found, self.committed, key=len)

    def elect(self) -> None:
        """One of those in sync, as the controller would."""
        record = self.nodes.record
        leader = self.chance.choice([node for node in record.isr if node in self.nodes.running])
        self.nodes.elect(leader, list(record.isr))

    def elect_unheard(self) -> None:
        """Not all hear of it at once."""
        record = self.nodes.record
        in_sync = [node for node in record.isr if node in self.nodes.running]
        leader = self.chance.choice(in_sync)
        heard = {leader, *self.chance.sample(in_sync, self.chance.randint(0, len(in_sync)))}
        self.nodes.elect(leader, list(record.isr), only=sorted(heard))

    async def kill(self) -> None:
        """One that comes back at once; it stays in sync, as if nobody had noticed."""
        node = self.chance.choice(self.nodes.ids)
        await self.nodes.stop(node, crash=self.chance.random() < 0.7)
        if node == self.nodes.record.leader:
            others = [each for each in self.nodes.record.isr if each != node]
            self.nodes.elect(self.chance.choice(others), list(self.nodes.record.isr))
        await self.nodes.start(node)

    async def step(self) -> None:
        kind = self.chance.choices(
            (self.append, self.elect, self.elect_unheard, self.nodes.cable.cut, self.kill, self.rest),
            (10, 2, 2, 2, 1, 6),
        )[0]
        done = kind()
        if done is not None:
            await done
        self.note()

    async def rest(self) -> None:
        for _ in range(self.chance.randint(1, 10)):
            await asyncio.sleep(self.chance.choice((0, 0, 0.001)))


@pytest.mark.parametrize("seed", range(8))
async def test_what_is_committed_stays_whatever_happens(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    async with run_nodes(tmp_path, chance.choice((2, 3, 3))) as nodes:
        storm = Storm(nodes, chance)
        for _ in range(60):
            await storm.step()
        nodes.elect(nodes.record.leader, list(nodes.record.isr))
        await nodes.until_equal()
        storm.note()
        assert len({nodes.bytes_of(node) for node in nodes.ids}) == 1
        assert nodes.bytes_of(1) == storm.committed
        assert storm.number > 20
