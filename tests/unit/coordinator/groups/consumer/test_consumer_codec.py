"""The bytes of consumer groups' records, which Kafka's own tools must be able to read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordinator.groups.codec import decode_record, encode_record
from barnabas.coordinator.groups.consumer.codec import TooLarge
from barnabas.coordinator.groups.consumer.core.records import (
    ClassicMetadata,
    ConsumerRecord,
    CurrentAssignment,
    CurrentRecord,
    GroupEpoch,
    GroupEpochRecord,
    MemberMetadata,
    MemberRecord,
    MemberState,
    RegexRecord,
    ResolvedRegex,
    SubscriptionMetadataRecord,
    TargetEpoch,
    TargetEpochRecord,
    TargetRecord,
)
from barnabas.coordinator.runtime.kind import UnreadableRecord

TOPIC = bytes(range(16))
TOPIC_HEX = TOPIC.hex()
GROUP = "0001 67"
MEMBER = "0001 67 0001 6d"

GOLDEN: list[tuple[ConsumerRecord, str, str | None]] = [
    (GroupEpochRecord("g", GroupEpoch(5, 0)), f"0003 {GROUP}", "0000 00000005 00"),
    (
        GroupEpochRecord("g", GroupEpoch(5, -2)),
        f"0003 {GROUP}",
        "0000 00000005 01 00 08 fffffffffffffffe",
    ),
    (GroupEpochRecord("g", None), f"0003 {GROUP}", None),
    (SubscriptionMetadataRecord("g", None), f"0004 {GROUP}", None),
    (SubscriptionMetadataRecord("g", bytes.fromhex("00000100")), f"0004 {GROUP}", "0000 01 00"),
    (
        MemberRecord("g", "m", MemberMetadata(None, None, "c", "/h", frozenset(("u", "t")), "", 300_000)),
        f"0005 {MEMBER}",
        "0000 00 00 02 63 03 2f68 03 02 74 02 75 01 000493e0 00 01 00 01 00",
    ),
    (
        MemberRecord(
            "g",
            "m",
            MemberMetadata(
                "i",
                "r",
                "",
                "",
                frozenset(),
                "a.*",
                -1,
                "range",
                ClassicMetadata(45_000, (("x", b"\x01\x02"), ("y", b""))),
            ),
        ),
        f"0005 {MEMBER}",
        "0000 02 69 02 72 01 01 01 04 612e2a ffffffff 06 72616e6765"
        "01 00 11 01 0000afc8 03 02 78 03 0102 00 02 79 01 00 00",
    ),
    (MemberRecord("g", "m", None), f"0005 {MEMBER}", None),
    (TargetEpochRecord("g", TargetEpoch(3)), f"0006 {GROUP}", "0000 00000003 00"),
    (
        TargetEpochRecord("g", TargetEpoch(3, 256)),
        f"0006 {GROUP}",
        "0000 00000003 01 00 08 0000000000000100",
    ),
    (TargetRecord("g", "m", {}), f"0007 {MEMBER}", "0000 01 00"),
    (
        TargetRecord("g", "m", {TOPIC: frozenset((2, 1))}),
        f"0007 {MEMBER}",
        f"0000 02 {TOPIC_HEX} 03 00000001 00000002 00 00",
    ),
    (
        CurrentRecord(
            "g",
            "m",
            CurrentAssignment(7, 6, MemberState.UNREVOKED_PARTITIONS, {TOPIC: {0: 6, 1: 7}}, {TOPIC: {2: 5}}),
        ),
        f"0008 {MEMBER}",
        f"0000 00000007 00000006 01 02 {TOPIC_HEX} 03 00000000 00000001 01 00 09 03 00000006 00000007"
        f"02 {TOPIC_HEX} 02 00000002 01 00 05 02 00000005 00",
    ),
    (
        CurrentRecord("g", "m", CurrentAssignment(-2, 6)),
        f"0008 {MEMBER}",
        "0000 fffffffe 00000006 00 01 01 00",
    ),
    (CurrentRecord("g", "m", None), f"0008 {MEMBER}", None),
    (
        RegexRecord("g", "t.*", ResolvedRegex(frozenset(("t2", "t1")), 9, 256)),
        f"0010 {GROUP} 0003 742e2a",
        "0000 03 03 7431 03 7432 0000000000000009 0000000000000100 00",
    ),
    (RegexRecord("g", "t.*", None), f"0010 {GROUP} 0003 742e2a", None),
]


@pytest.mark.parametrize(("record", "key", "value"), GOLDEN)
def test_written_bytes(record: ConsumerRecord, key: str, value: str | None) -> None:
    expected = None if value is None else bytes.fromhex(value)
    assert encode_record(record) == (bytes.fromhex(key), expected)
    assert decode_record(bytes.fromhex(key), expected) == record


@pytest.mark.parametrize(("record", "key", "value"), [case for case in GOLDEN if case[2] is not None])
def test_bytes_that_end_early_are_unreadable(record: ConsumerRecord, key: str, value: str) -> None:
    if isinstance(record, SubscriptionMetadataRecord):
        return  # only that it is there counts
    data = bytes.fromhex(value)
    for end in range(len(data)):
        with pytest.raises(UnreadableRecord):
            decode_record(bytes.fromhex(key), data[:end])


def test_partitions_without_epochs_were_given_in_the_members() -> None:
    value = bytes.fromhex(f"0000 00000007 00000006 00 02 {TOPIC_HEX} 02 00000003 00 01 00")
    record = decode_record(bytes.fromhex(f"0008 {MEMBER}"), value)
    assert isinstance(record, CurrentRecord)
    assert record.value is not None
    assert record.value.assigned == {TOPIC: {3: 7}}


def test_partitions_with_null_epochs_of_a_member_that_is_away_were_given_in_epoch_0() -> None:
    value = bytes.fromhex(f"0000 fffffffe 00000006 00 02 {TOPIC_HEX} 02 00000003 01 00 01 00 01 00")
    record = decode_record(bytes.fromhex(f"0008 {MEMBER}"), value)
    assert isinstance(record, CurrentRecord)
    assert record.value is not None
    assert record.value.assigned == {TOPIC: {3: 0}}


def test_a_state_of_a_newer_coordinator_is_unknown() -> None:
    value = bytes.fromhex("0000 00000007 00000006 09 01 01 00")
    record = decode_record(bytes.fromhex(f"0008 {MEMBER}"), value)
    assert isinstance(record, CurrentRecord)
    assert record.value is not None
    assert record.value.state is MemberState.UNKNOWN


def test_a_member_without_a_word_on_protocols_is_no_classic_one_and_unknown_tags_are_left_out() -> None:
    value = bytes.fromhex("0000 00 00 01 01 01 00 ffffffff 00 01 05 01 ff")
    assert decode_record(bytes.fromhex(f"0005 {MEMBER}"), value) == MemberRecord("g", "m", MemberMetadata())


def test_newer_values_are_unreadable() -> None:
    with pytest.raises(UnreadableRecord):
        decode_record(bytes.fromhex(f"0003 {GROUP}"), bytes.fromhex("0001 00000005 00"))


def test_what_no_batch_could_have_is_not_written() -> None:
    topics = frozenset(f"{number:0>200}" for number in range(6000))
    with pytest.raises(TooLarge):
        encode_record(RegexRecord("g", ".*", ResolvedRegex(topics, 1, 1)))
    fewer = ResolvedRegex(frozenset(f"{number:0>200}" for number in range(5_000)), 1, 1)
    encode_record(RegexRecord("g", ".*", fewer))
    with pytest.raises(TooLarge):
        encode_record(RegexRecord("g" * 30_000, ".*", fewer))


texts = st.text(max_size=200)
topic_ids = st.binary(min_size=16, max_size=16)
partitions = st.integers(0, 2**31 - 1)
epochs = st.integers(-(2**31), 2**31 - 1)
held = st.dictionaries(topic_ids, st.dictionaries(partitions, epochs, min_size=1, max_size=200), max_size=4)


@given(
    st.builds(
        MemberMetadata,
        st.none() | texts,
        st.none() | texts,
        texts,
        texts,
        st.frozensets(texts, max_size=5),
        texts,
        epochs,
        st.none() | texts,
        st.none()
        | st.builds(
            ClassicMetadata,
            epochs,
            st.lists(st.tuples(texts, st.binary(max_size=300)), max_size=3).map(tuple),
        ),
    ),
    st.builds(CurrentAssignment, epochs, epochs, st.sampled_from(MemberState), held, held),
)
def test_what_is_written_is_read(metadata: MemberMetadata, current: CurrentAssignment) -> None:
    for record in (MemberRecord("g", "m", metadata), CurrentRecord("g", "m", current)):
        assert decode_record(*encode_record(record)) == record


@given(st.sampled_from([3, 5, 6, 7, 8, 16]), st.binary(max_size=60))
def test_any_bytes_are_read_or_unreadable(key_type: int, data: bytes) -> None:
    key = key_type.to_bytes(2) + bytes.fromhex("0001 67 0001 6d")
    try:
        decode_record(key, b"\x00\x00" + data)
    except UnreadableRecord:
        return
