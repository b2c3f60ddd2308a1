"""Calls to the active controller on behalf of clients, with Kafka's codes when it gives no answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

from barnabas.gateway import limits
from barnabas.gateway.parts import GatewayParts
from barnabas.gateway.request import Request, milliseconds
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.links.errors import DeadlinePassed, LinkError, Refusal, Refused
from barnabas.metadata.image import MetadataImage

if TYPE_CHECKING:
    from barnabas.links.controller_link import ControllerLink

ResponseT = TypeVar("ResponseT")


_NOT_TAKEN: Final = (Refusal.NOT_ACTIVE, Refusal.TOO_BUSY)
"""The controller certainly changed nothing: it is not the active one, or has too much to do."""


async def call_controller(
    parts: GatewayParts,
    call: Callable[[ControllerLink, float], Awaitable[ResponseT]],
    timeout_seconds: float = limits.CALL_TIMEOUT_SECONDS,
) -> ResponseT:
    """The controller's answer. `call(controller, seconds)` makes one attempt with what is left of the time.

    What a controller did not take is tried again until the time is up; an attempt whose outcome is unknown is not.
    Raises KafkaError: with what the controller refused it with, or what all clients may retry, REQUEST_TIMED_OUT, and
    NOT_CONTROLLER for a lost controller.
    """
    deadline = _now() + timeout_seconds
    while True:
        left = deadline - _now()
        if left <= 0:
            raise KafkaError(
                ErrorCode.request_timed_out, "No controller took the request in time: try again."
            )
        try:
            return await call(parts.metadata.controller, left)
        except DeadlinePassed as error:
            raise KafkaError(
                ErrorCode.request_timed_out, "The controller did not answer in time: see what it did."
            ) from error
        except Refused as error:
            if error.why not in _NOT_TAKEN:
                raise _refused(error) from error
        except LinkError as error:
            reason = f"The controller was lost ({error}): try again."
            raise KafkaError(ErrorCode.not_controller, reason) from error
        await asyncio.sleep(min(limits.CONTROLLER_RETRY_SECONDS, left))


def _refused(error: Refused) -> KafkaError:
    """What a client is told who would ask in vain again, unless the controller's own code says otherwise."""
    if error.code is not None:
        return KafkaError(error.code, str(error))
    if error.why is Refusal.UNKNOWN_CALL:
        reason = f"The controller is of an earlier version, which does not know the request ({error})."
        return KafkaError(ErrorCode.unsupported_version, reason)
    return KafkaError(ErrorCode.unknown_server_error, f"The controller refused the request: {error}")


def _now() -> float:
    """Seconds of the event loop: a peer's answer takes those, whatever a test makes of the clock."""
    return asyncio.get_running_loop().time()


def controller_timeout_seconds(request: Request) -> float:
    """The time that the client gives the controller; a client that gives none does not mean to fail."""
    timeout_ms = milliseconds(request.body.timeout)
    return timeout_ms / 1000 if timeout_ms > 0 else limits.CALL_TIMEOUT_SECONDS


def wait_seconds(request: Request) -> float:
    """How long the client lets us wait for a change to take effect; 0 or less: not at all."""
    timeout = request.get("timeout", None)
    seconds = limits.IMAGE_WAIT_SECONDS if timeout is None else milliseconds(timeout) / 1000
    return min(seconds, limits.IMAGE_WAIT_SECONDS)


async def wait_for_image(request: Request, holds: Callable[[MetadataImage], bool]) -> None:
    """Wait until this gateway knows of a change, so that the client's next request sees it.

    Waits no longer than IMAGE_WAIT_SECONDS, and not at all when the client's timeout is 0 ("do not wait").
    """
    seconds = wait_seconds(request)
    if seconds <= 0:
        return
    try:
        async with asyncio.timeout(seconds):
            await request.parts.metadata.wait_until(holds)
    except TimeoutError:
        return  # the change is made all the same
