"""What is at fault where something cannot be written: what holds for all that is in its directory, or less, or more."""

from __future__ import annotations

import errno
import os

import pytest

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.log.errors import Refuser, refuser_of, storage_errors


@pytest.mark.parametrize(
    ("number", "refuser"),
    [
        (errno.ENOSPC, Refuser.DISK),
        (errno.EIO, Refuser.DISK),
        (errno.EROFS, Refuser.DISK),
        (errno.EMFILE, Refuser.PROCESS),
        (errno.ENOMEM, Refuser.PROCESS),
        (errno.EUCLEAN, Refuser.LOG),
        (errno.ENOENT, Refuser.LOG),
        (errno.EISDIR, Refuser.LOG),
        (errno.EACCES, Refuser.LOG),
        (errno.EFBIG, Refuser.LOG),
        (errno.EBADF, Refuser.LOG),
        (None, Refuser.LOG),
    ],
)
def test_the_disk_or_the_process_or_the_log(number: int | None, refuser: Refuser) -> None:
    with pytest.raises(KafkaError) as refused, storage_errors("/logs"):
        raise OSError("nobody knows") if number is None else OSError(number, os.strerror(number))
    assert refuser_of(refused.value) is refuser


def test_a_log_that_is_trusted_no_more_says_nothing_of_the_disk() -> None:
    assert refuser_of(KafkaError(ErrorCode.kafka_storage_error, "closed")) is None


def test_other_refusals_are_not_of_what_is_written_to() -> None:
    refused = KafkaError(ErrorCode.corrupt_message, "its CRC")
    refused.__cause__ = OSError(errno.EIO, "input/output error")
    assert refuser_of(refused) is None
