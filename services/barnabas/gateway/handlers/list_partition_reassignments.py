"""ListPartitionReassignments (key 46): partitions that are moving to other brokers (KIP-455).

Nothing moves partitions yet, so there are none. Kafka too answers a topic that does not exist, and one that is not
being moved, by leaving it out.
"""

from __future__ import annotations

from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import ErrorCode


async def handle(_: Request) -> Answer:
    return {"error_code": ErrorCode.none, "error_message": None, "topics": []}


HANDLER = Handler(
    api_key=46,
    versions=(0, 0),
    handle=handle,
    lacks="Partitions cannot be reassigned yet, so the list is always empty.",
)
