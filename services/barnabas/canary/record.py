"""A canary record: which canary sent it, through which gateway, its number there. JSON, for people to read."""

from __future__ import annotations

import json

from barnabas.canary.core.ledger import RecordId


def encode(run: str, record: RecordId) -> bytes:
    """The value of a record of the canary process `run`."""
    return json.dumps({"run": run, "gateway": record.gateway, "sequence": record.sequence}).encode()


def decode(run: str, value: bytes | None) -> RecordId | None:
    """Which record this is; None for one that another process sent."""
    try:
        fields = json.loads(value or b"")
        if fields["run"] != run:
            return None
        return RecordId(str(fields["gateway"]), int(fields["sequence"]))
    except (ValueError, KeyError, TypeError):
        return None
