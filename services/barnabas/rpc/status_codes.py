"""gRPC's status codes and the errors of links: one is translated into the other here and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import grpc
import grpc.aio

from barnabas.links.errors import DeadlinePassed, LinkError, OutcomeUnknown, Refusal, Refused

_STATUS: Final[Mapping[Refusal, grpc.StatusCode]] = MappingProxyType(
    {
        Refusal.NOT_ACTIVE: grpc.StatusCode.FAILED_PRECONDITION,
        Refusal.TOO_BUSY: grpc.StatusCode.RESOURCE_EXHAUSTED,
        Refusal.NEVER_ACCEPTED: grpc.StatusCode.INVALID_ARGUMENT,
        Refusal.ID_TAKEN: grpc.StatusCode.ALREADY_EXISTS,
        Refusal.NOT_REGISTERED: grpc.StatusCode.NOT_FOUND,
        Refusal.OTHER_HISTORY: grpc.StatusCode.DATA_LOSS,
        Refusal.UNKNOWN_CALL: grpc.StatusCode.UNIMPLEMENTED,
    }
)
_REFUSALS: Final = MappingProxyType({status: why for why, status in _STATUS.items()})


def status_of(error: LinkError) -> grpc.StatusCode:
    """With what a server ends a call that failed so."""
    return _STATUS[error.why] if isinstance(error, Refused) else grpc.StatusCode.UNAVAILABLE


def error_of(failed: grpc.aio.AioRpcError) -> LinkError:
    """What the caller is told.

    gRPC says UNAVAILABLE of a call that found no connection as of one whose connection broke: its outcome is unknown.
    """
    status = failed.code()
    reason = failed.details() or status.name
    if status in _REFUSALS:
        return Refused(_REFUSALS[status], reason)
    if status is grpc.StatusCode.DEADLINE_EXCEEDED:
        return DeadlinePassed(reason)
    return OutcomeUnknown(reason)
