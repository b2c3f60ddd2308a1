"""gRPC's status codes and the errors of links: one is translated into the other here and nowhere else.

What a service of ours refuses is marked in the trailing metadata: gRPC has some of these statuses for failures of its
own, after which a request may have been carried out.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import grpc
import grpc.aio

from barnabas.kernel.errors import ErrorCode
from barnabas.links.errors import (
    ConnectionRefused,
    DeadlinePassed,
    LinkError,
    OutcomeUnknown,
    Refusal,
    Refused,
    Unreachable,
)
from barnabas.messages.calls_pb2 import CallFailure

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

_REFUSAL_OF_NUMBER: Final = MappingProxyType({status.value[0]: why for why, status in _STATUS.items()})

REFUSED_KEY: Final = "barnabas-refused"
"""Marks a refusal; the value is Kafka's error code, 0 where there is none."""

FAILED_KEY: Final = "barnabas-failed"
"""Marks an ending of ours that is no refusal: its reason may be any text, one of gRPC's too."""

REASON_CHARACTERS_MAX: Final = 500
"""Of a reason, what is sent. gRPC's limit for all metadata of a call is 8 KiB, of which a character takes up to 12."""

_ALSO_OF_GRPC: Final = frozenset({grpc.StatusCode.RESOURCE_EXHAUSTED})
"""What says nothing without the mark: gRPC ends a call so whose answer is larger than a message may be. All others it
never makes itself, or only for a call that it did not pass on (UNIMPLEMENTED)."""

_NOT_CONNECTED: Final = "failed to connect to all addresses"
"""So gRPC begins what it says of a call that found no connection, and was not sent."""

_NOBODY_THERE: Final = tuple(
    words
    for number in (errno.ECONNREFUSED, errno.ENOENT)
    for words in (os.strerror(number), f"{os.strerror(number)} ({number})")
)
"""And so it ends, with the kernel's words, where no process has the TCP address, or the path of the socket. Of gRPC's
two ways to connect one adds the number: `kernel.service.GRPC_EXPERIMENTS` has services take that one."""

Ending = tuple[grpc.StatusCode, str, tuple[tuple[str, str], ...]]
"""Status, reason and trailing metadata."""


def ending_of(error: LinkError) -> Ending:
    """With what a server ends a call that failed so."""
    reason = str(error)[:REASON_CHARACTERS_MAX]
    if not isinstance(error, Refused):
        return grpc.StatusCode.UNAVAILABLE, reason, ((FAILED_KEY, ""),)
    code = ErrorCode.none if error.code is None else error.code
    return _STATUS[error.why], reason, ((REFUSED_KEY, str(code.value)),)


def error_of(failed: grpc.aio.AioRpcError) -> LinkError:
    """What the caller is told.

    gRPC says UNAVAILABLE of a call that found no connection as of one whose connection broke: its outcome is unknown.
    That a connection was refused only its text tells, which of several addresses has the last one's failure.
    """
    status = failed.code()
    reason = failed.details() or status.name
    metadata: Any = failed.trailing_metadata()  # a grpc.aio.Metadata, of which its types do not know
    mark = metadata.get(REFUSED_KEY)
    if status in _REFUSALS and (mark is not None or status not in _ALSO_OF_GRPC):
        return Refused(_REFUSALS[status], reason, _kafka_code(mark))
    if status is grpc.StatusCode.DEADLINE_EXCEEDED:
        return DeadlinePassed(reason)
    is_refused = reason.startswith(_NOT_CONNECTED) and reason.endswith(_NOBODY_THERE)
    if is_refused and metadata.get(FAILED_KEY) is None:
        return ConnectionRefused(reason)
    return OutcomeUnknown(reason)


def failure_of(error: LinkError) -> CallFailure:
    """What a coalesced call's result says of it, where `ending_of` ends a call of its own."""
    status, reason, ((key, mark),) = ending_of(error)
    failure = CallFailure(status=status.value[0], reason=reason)
    if key == REFUSED_KEY:
        failure.refused_code = int(mark)
    failure.is_untouched = isinstance(error, Unreachable)
    return failure


def error_of_failure(failure: CallFailure) -> LinkError:
    """What the caller of a coalesced call is told."""
    why = _REFUSAL_OF_NUMBER.get(failure.status)
    if why is not None:
        return Refused(why, failure.reason, _kafka_code(str(failure.refused_code)))
    return (Unreachable if failure.is_untouched else OutcomeUnknown)(failure.reason)


def _kafka_code(mark: str | bytes | None) -> ErrorCode | None:
    try:
        code = ErrorCode(int(mark or 0))
    except ValueError:
        return ErrorCode.unknown_server_error  # of a later version, which knows more of them
    return None if code is ErrorCode.none else code
