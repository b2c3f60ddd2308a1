"""DeleteAcls (key 31): without an authorizer, each filter is refused with SECURITY_DISABLED."""

from __future__ import annotations

from typing import Final

from barnabas.gateway.answers.with_error import error_answer
from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import ErrorCode

_API_KEY: Final = 31


async def handle(request: Request) -> Answer:
    message = "no ACLs: no authorizer is configured"
    return error_answer(_API_KEY, request.version, request.body, ErrorCode.security_disabled, message)


HANDLER = Handler(
    api_key=_API_KEY,
    versions=(1, 3),
    handle=handle,
    lacks="SECURITY_DISABLED, as by a Kafka without an authorizer.",
)
