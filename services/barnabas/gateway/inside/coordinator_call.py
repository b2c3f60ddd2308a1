"""A request of clients that is one call of the coordinator that owns its group or transactional id.

What is asked, and what its client is told, is said once here for both ways on which that can be: that of any request
(`CoordinatorCall.handle`), and the one without a task (`plain_calls.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from barnabas.gateway import limits
from barnabas.gateway.inside.by_coordinator import not_answered
from barnabas.gateway.inside.owners import Owners
from barnabas.gateway.request import Answer, Request
from barnabas.kernel.errors import ErrorCode
from barnabas.links.begun import Begun
from barnabas.links.errors import LinkError
from barnabas.wire.responses import Body


@dataclass(frozen=True, slots=True)
class CoordinatorCall:
    """One kind of such requests. The types of its messages are those of the call."""

    name: str
    """The call's, in the contract."""
    owners: Owners[Any]
    message: Callable[[Request], Any]
    """What the coordinator is asked. Raises KafkaError where it need not be."""
    answer: Callable[[Request, Any], Body]
    """What the client is told, by the response."""
    refused: Callable[[Any, ErrorCode], Any]
    """The response to a message in place of one that the coordinator does not give."""
    seconds: Callable[[Any], float] = lambda _: limits.CALL_TIMEOUT_SECONDS
    """How long the response to a message may take."""
    may_repeat: Callable[[Any], bool] = lambda _: False
    """Whether a message may be sent again of which nobody knows whether it was carried out: see `Patience.ask`."""

    async def handle(self, request: Request) -> Answer:
        """The answer by way of the coordinator, which is waited for a while where it has gone."""
        message = self.message(request)
        response = await self.owners.ask(
            request,
            self.owners.key_of(message),
            lambda link: getattr(link, self.name)(message, timeout=self.seconds(message)),
            lambda code: self.refused(message, code),
            may_repeat=self.may_repeat(message),
        )
        return self.answer(request, response)

    def begin(self, request: Request, message: Any) -> Begun | None:
        """Begin it where the coordinator is in this process: see `CoordinatorLink.begin`. Raises KafkaError and
        LinkError.
        """
        link = self.owners.find(request.parts.links, self.owners.key_of(message))
        begun: Begun | None = link.begin(self.name, message, self.seconds(message))
        return begun

    def answer_begun(self, request: Request, message: Any, begun: Begun) -> Body:
        """The answer once what was begun is over."""
        try:
            response = begun.response()
        except LinkError as error:
            response = self.refused(message, not_answered(request, error))
        else:
            request.parts.patience.on_answer(request, self.owners.topic, self.owners.key_of(message))
        return self.answer(request, response)
