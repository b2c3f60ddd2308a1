"""What is committed beneath decisions on their way, against a model that keeps every state there was."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.groups.core.records import (
    GroupLogRecord,
    GroupRecord,
    MarkerRecord,
    OffsetAndMetadata,
    OffsetKey,
    OffsetRecord,
)
from barnabas.coordinator.groups.core.shard import GroupShard
from barnabas.coordinator.runtime.core.producers import Producer

_values = st.none() | st.integers(0, 9).map(OffsetAndMetadata)
_producers = st.integers(1, 2).map(lambda producer_id: Producer(producer_id, 0))
_keys = st.sampled_from("gh"), st.sampled_from(["t", "u"]), st.integers(0, 1)
_offsets = st.builds(OffsetRecord, *_keys, _values)
_pending = st.builds(OffsetRecord, *_keys, st.integers(0, 9).map(OffsetAndMetadata), _producers)
_markers = st.builds(MarkerRecord, _producers, st.booleans(), st.just(0))
_groups = st.builds(GroupRecord, st.sampled_from("gh"), st.none())


@given(st.lists(_offsets | _pending | _markers | _groups | st.just("committed"), max_size=40))
def test_it_is_what_the_log_alone_would_say(steps: list[GroupLogRecord | str]) -> None:
    decided, by_the_log = GroupShard(CoordinatorConfig()), GroupShard(CoordinatorConfig())
    on_their_way: list[GroupLogRecord] = []
    for step in steps:
        if not isinstance(step, str):
            decided.replay_uncommitted(step)
            on_their_way.append(step)
        elif on_their_way:
            oldest = on_their_way.pop(0)
            decided.on_committed(oldest)
            by_the_log.replay(oldest)
        for group in "gh":
            assert decided.committed_offsets(group) == by_the_log.offsets.get(group, {})
            for key in (OffsetKey(group, topic, partition) for topic in "tu" for partition in (0, 1)):
                assert decided.is_pending_in_log(key) == by_the_log.pending.has(key)
    for record in on_their_way:
        decided.on_committed(record)
    assert decided.committed_offsets("g") is decided.offsets.get("g", {}) or not decided.offsets.get("g")
