"""What can be wrong with a store on disk, when it is opened and later."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from barnabas.kernel.errors import ErrorCode, KafkaError

_OF_THE_DISK: Final = frozenset(
    (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENODEV, errno.ENXIO)
)
"""What says that the disk takes no more, whichever file is written. Others are about one file, or about the process (no
descriptor is left)."""


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


def is_of_disk(error: KafkaError) -> bool:
    """Whether the disk has refused, and not only a log that is closed or trusted no more, or a process that has used up
    what it may have; its `__cause__` has the error number.
    """
    cause = error.__cause__
    if error.code != ErrorCode.kafka_storage_error or not isinstance(cause, OSError):
        return False
    return cause.errno in _OF_THE_DISK
