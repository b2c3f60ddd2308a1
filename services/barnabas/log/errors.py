"""What can be wrong with a store on disk, when it is opened and later."""

from __future__ import annotations

import enum
import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from barnabas.kernel.errors import ErrorCode, KafkaError

_OF_THE_DISK: Final = frozenset(
    (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENODEV, errno.ENXIO)
)
"""What says that the disk takes no more, whichever file is written."""

_OF_THE_PROCESS: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN))
"""What says that the process, or its machine, has used up what it may have. It says nothing of any file."""


class Refuser(enum.Enum):
    """What is at fault when something cannot be written to a log."""

    DISK = "disk"
    """Nothing in its directory can be written."""
    PROCESS = "process"
    """No descriptor or no memory is left."""
    LOG = "log"
    """Its own directory is gone, or damaged, or something else stands where a file is to be: whatever is neither of the
    others."""


class LogStoreError(Exception):
    """The store cannot be used as it is; nothing in it was changed. The message says what to do.

    Raised only while opening: a store that belongs to another cluster or node, is in use by another process, or
    has a file that cannot be read. What goes wrong later is a `KafkaError` with KAFKA_STORAGE_ERROR.
    """


class WouldBlock(Exception):
    """An append needs more of the disk than its one write, takes long to check, or waits for a thread that changes the
    log.

    Nothing was changed: the caller does the same again in a thread, with `may_block=True`.
    """


@contextmanager
def storage_errors(directory: str) -> Iterator[None]:
    """The disk's refusals, as the code that clients and the storage service know."""
    try:
        yield
    except BlockingIOError:
        raise
    except OSError as error:
        raise storage_error(directory, error) from error


def storage_error(directory: str, error: OSError) -> KafkaError:
    """A refusal of the disk's, as clients and the storage service know it."""
    return KafkaError(ErrorCode.kafka_storage_error, f"{directory}: {error}")


def refuser_of(error: KafkaError) -> Refuser | None:
    """What has refused, by the error number that `__cause__` has; None where none did: the log is closed or trusted no
    more, or its directory is slow.
    """
    cause = error.__cause__
    if error.code != ErrorCode.kafka_storage_error or not isinstance(cause, OSError):
        return None
    if cause.errno in _OF_THE_DISK:
        return Refuser.DISK
    return Refuser.PROCESS if cause.errno in _OF_THE_PROCESS else Refuser.LOG
