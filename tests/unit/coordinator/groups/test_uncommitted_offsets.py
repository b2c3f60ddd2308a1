"""What is committed beneath decisions on their way, against a model that keeps every state there was."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.groups.core.records import OffsetAndMetadata, OffsetRecord
from barnabas.coordinator.groups.core.shard import GroupShard

_values = st.none() | st.integers(0, 9).map(OffsetAndMetadata)
_records = st.builds(
    OffsetRecord, st.sampled_from("gh"), st.sampled_from(["t", "u"]), st.integers(0, 1), _values
)


@given(st.lists(_records | st.just("committed"), max_size=40))
def test_it_is_what_the_log_alone_would_say(steps: list[OffsetRecord | str]) -> None:
    decided, by_the_log = GroupShard(CoordinatorConfig()), GroupShard(CoordinatorConfig())
    on_their_way: list[OffsetRecord] = []
    for step in steps:
        if isinstance(step, OffsetRecord):
            decided.replay_uncommitted(step)
            on_their_way.append(step)
        elif on_their_way:
            oldest = on_their_way.pop(0)
            decided.on_committed(oldest)
            by_the_log.replay(oldest)
        for group in "gh":
            assert decided.committed_offsets(group) == by_the_log.offsets.get(group, {})
    for record in on_their_way:
        decided.on_committed(record)
    assert decided.committed_offsets("g") is decided.offsets.get("g", {}) or not decided.offsets.get("g")
