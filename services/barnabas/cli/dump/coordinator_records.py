"""Records of __consumer_offsets as Kafka's --offsets-decoder shows them: JSON with the type and version in front.

The group's consumer protocol (subscription and assignment) stays bytes, in base64.
"""

from __future__ import annotations

import base64
from typing import Any, Final

from barnabas.cli.dump.consumer_group_records import consumer_group_key, consumer_group_value
from barnabas.cli.dump.entries import Entry

DELETED: Final = "<DELETE>"
"""What is shown for a tombstone's value."""


def decode_coordinator_record(key: bytes | None, value: bytes | None) -> tuple[Any, Any]:
    """(key, value) as plain data; what this decoder does not know is shown as text."""
    from barnabas.coordinator.groups.codec import decode_record
    from barnabas.coordinator.groups.core.records import GroupRecord, OffsetRecord
    from barnabas.coordinator.runtime.kind import UnreadableRecord

    try:
        record = decode_record(key, value)
    except UnreadableRecord as error:
        return _text(key), f"unreadable: {error}"
    if record is None:
        return _text(key), _text(value)
    assert key is not None
    shown_key: Entry = {"type": str(int.from_bytes(key[:2], "big")), "data": {"group": record.group_id}}
    version = None if value is None else str(int.from_bytes(value[:2], "big"))
    if not isinstance(record, OffsetRecord | GroupRecord):
        shown_key["data"] = consumer_group_key(record)
        if record.value is None:
            return shown_key, DELETED
        return shown_key, {"version": version, "data": consumer_group_value(record)}
    if isinstance(record, OffsetRecord):
        shown_key["data"] |= {"topic": record.topic, "partition": record.partition}
        if record.value is None:
            return shown_key, DELETED
        offset = record.value
        data: Entry = {
            "offset": offset.offset,
            "leaderEpoch": offset.leader_epoch,
            "metadata": offset.metadata,
            "commitTimestamp": offset.commit_timestamp_ms,
        }
        if offset.topic_id:
            data["topicId"] = base64.urlsafe_b64encode(offset.topic_id).decode().rstrip("=")
        return shown_key, {"version": version, "data": data}
    if record.value is None:
        return shown_key, DELETED
    group = record.value
    return shown_key, {
        "version": version,
        "data": {
            "protocolType": group.protocol_type,
            "generation": group.generation,
            "protocol": group.protocol,
            "leader": group.leader,
            "currentStateTimestamp": group.state_timestamp_ms,
            "members": [
                {
                    "memberId": member.member_id,
                    "groupInstanceId": member.group_instance_id,
                    "clientId": member.client_id,
                    "clientHost": member.client_host,
                    "rebalanceTimeout": member.rebalance_timeout_ms,
                    "sessionTimeout": member.session_timeout_ms,
                    "subscription": base64.b64encode(member.subscription).decode(),
                    "assignment": base64.b64encode(member.assignment).decode(),
                }
                for member in group.members
            ],
        },
    }


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="replace")
