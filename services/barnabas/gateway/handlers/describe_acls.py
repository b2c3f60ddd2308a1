"""DescribeAcls (key 29): which ACLs there are. None: without an authorizer Kafka says SECURITY_DISABLED, and so do we.

That it is said, instead of an API that is not there, matters: tools and consoles ask to learn whether there are ACLs.
"""

from __future__ import annotations

from typing import Final

from barnabas.gateway.answers.with_error import error_answer
from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import ErrorCode

_API_KEY: Final = 29


async def handle(request: Request) -> Answer:
    message = "no ACLs: no authorizer is configured"
    return error_answer(_API_KEY, request.version, request.body, ErrorCode.security_disabled, message)


HANDLER = Handler(
    api_key=_API_KEY,
    versions=(1, 3),
    handle=handle,
    lacks="SECURITY_DISABLED, as by a Kafka without an authorizer.",
)
