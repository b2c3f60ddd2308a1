"""Records of consumer groups as `dump-log --offsets-decoder` shows them: as Kafka's tool printed the same bytes."""

from __future__ import annotations

import json

import pytest

from barnabas.cli.dump.coordinator_records import DELETED, decode_coordinator_record
from barnabas.coordinator.groups.codec import encode_record
from barnabas.coordinator.groups.consumer.core.records import (
    ClassicMetadata,
    ConsumerRecord,
    CurrentAssignment,
    CurrentRecord,
    GroupEpoch,
    GroupEpochRecord,
    MemberMetadata,
    MemberRecord,
    RegexRecord,
    ResolvedRegex,
    TargetEpoch,
    TargetEpochRecord,
    TargetRecord,
)

TOPIC = bytes(range(240, 256))
SHOWN = "8PHy8_T19vf4-fr7_P3-_w"

SHOWN_RECORDS: list[tuple[ConsumerRecord, str, str | None]] = [
    (
        GroupEpochRecord("g", GroupEpoch(2, -5)),
        '{"type":"3","data":{"groupId":"g"}}',
        '{"version":"0","data":{"epoch":2,"metadataHash":-5}}',
    ),
    (
        GroupEpochRecord("g", GroupEpoch(2, 0)),
        '{"type":"3","data":{"groupId":"g"}}',
        '{"version":"0","data":{"epoch":2}}',
    ),
    (
        MemberRecord("g", "m", MemberMetadata(None, None, "c", "/h", frozenset("ba"), "", 300)),
        '{"type":"5","data":{"groupId":"g","memberId":"m"}}',
        '{"version":"0","data":{"instanceId":null,"rackId":null,"clientId":"c","clientHost":"/h",'
        '"subscribedTopicNames":["a","b"],"subscribedTopicRegex":"","rebalanceTimeoutMs":300,'
        '"serverAssignor":null,"classicMemberMetadata":null}}',
    ),
    (
        MemberRecord("g", "m", MemberMetadata(classic=ClassicMetadata(7, (("range", b"\0"),)))),
        '{"type":"5","data":{"groupId":"g","memberId":"m"}}',
        '{"version":"0","data":{"instanceId":null,"rackId":null,"clientId":"","clientHost":"",'
        '"subscribedTopicNames":[],"subscribedTopicRegex":"","rebalanceTimeoutMs":-1,"serverAssignor":null,'
        '"classicMemberMetadata":{"sessionTimeoutMs":7,'
        '"supportedProtocols":[{"name":"range","metadata":"AA=="}]}}}',
    ),
    (MemberRecord("g", "m", None), '{"type":"5","data":{"groupId":"g","memberId":"m"}}', None),
    (
        TargetEpochRecord("g", TargetEpoch(4, 9)),
        '{"type":"6","data":{"groupId":"g"}}',
        '{"version":"0","data":{"assignmentEpoch":4,"assignmentTimestamp":9}}',
    ),
    (
        TargetRecord("g", "m", {TOPIC: frozenset((1, 0))}),
        '{"type":"7","data":{"groupId":"g","memberId":"m"}}',
        f'{{"version":"0","data":{{"topicPartitions":[{{"topicId":"{SHOWN}","partitions":[0,1]}}]}}}}',
    ),
    (
        CurrentRecord("g", "m", CurrentAssignment(3, 2, assigned={TOPIC: {1: 3, 0: 2}})),
        '{"type":"8","data":{"groupId":"g","memberId":"m"}}',
        '{"version":"0","data":{"memberEpoch":3,"previousMemberEpoch":2,"state":0,"assignedPartitions":'
        f'[{{"topicId":"{SHOWN}","partitions":[0,1],"assignmentEpochs":[2,3]}}],"partitionsPendingRevocation":[]}}}}',
    ),
    (
        RegexRecord("g", "t.*", ResolvedRegex(frozenset("t"), 5, 6)),
        '{"type":"16","data":{"groupId":"g","regularExpression":"t.*"}}',
        '{"version":"0","data":{"topics":["t"],"version":5,"timestamp":6}}',
    ),
]


@pytest.mark.parametrize(("record", "key", "value"), SHOWN_RECORDS)
def test_a_record_is_shown_as_kafkas_tool_shows_it(
    record: ConsumerRecord, key: str, value: str | None
) -> None:
    shown_key, shown_value = decode_coordinator_record(*encode_record(record))
    assert json.dumps(shown_key, separators=(",", ":")) == key
    if value is None:
        assert shown_value == DELETED
    else:
        assert json.dumps(shown_value, separators=(",", ":")) == value
