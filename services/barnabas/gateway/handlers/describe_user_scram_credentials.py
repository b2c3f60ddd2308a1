"""DescribeUserScramCredentials (key 50): which users have SCRAM credentials, and of which kind (KIP-554).

Nobody has any: a user that is named is answered with RESOURCE_NOT_FOUND, as Kafka answers for a user without them.
kafka-configs asks for them whenever it describes users, so that their quotas can only be seen when this is served.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import ErrorCode


async def handle(request: Request) -> Answer:
    times = Counter(user.name for user in request.body.users or ())
    return {
        "error_code": ErrorCode.none,
        "error_message": "",
        "results": [_no_credentials(name, count) for name, count in times.items()],
    }


def _no_credentials(name: str, count: int) -> dict[str, Any]:
    if count > 1:
        code, message = ErrorCode.duplicate_resource, f"User {name} appears more than once in the request."
    else:
        code, message = ErrorCode.resource_not_found, f"User {name} has no SCRAM credentials."
    return {"user": name, "error_code": code, "error_message": message}


HANDLER = Handler(
    api_key=50,
    versions=(0, 0),
    handle=handle,
    lacks="No user has credentials: they cannot be set until SASL is served.",
)
