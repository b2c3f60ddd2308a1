"""What is asked about ACLs, of which there are none: SECURITY_DISABLED, as by a Kafka without an authorizer.

That this is said, instead of an API that is not there, matters: tools and consoles ask to learn whether there are ACLs.
"""

from __future__ import annotations

from typing import Final

from barnabas.gateway.answers.with_error import error_answer
from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import ErrorCode

_VERSIONS: Final = 1, 3


def handler_without_authorizer(api_key: int) -> Handler:
    """The row of the handler table of an API about ACLs."""
    return Handler(
        api_key=api_key,
        versions=_VERSIONS,
        handle=_handle,
        lacks="SECURITY_DISABLED, as by a Kafka without an authorizer.",
    )


async def _handle(request: Request) -> Answer:
    return error_answer(
        request.header.api_key,
        request.version,
        request.body,
        ErrorCode.security_disabled,
        "there are no ACLs: no authorizer is configured",
    )
