"""What counts as a disk that refuses: what holds for all that is in its directory."""

from __future__ import annotations

import errno
import os

import pytest

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.log.errors import is_of_disk, storage_errors


@pytest.mark.parametrize(
    ("number", "counts"),
    [
        (errno.ENOSPC, True),
        (errno.EIO, True),
        (errno.EROFS, True),
        (errno.EMFILE, False),
        (errno.EBADF, False),
        (errno.EFBIG, False),
    ],
)
def test_the_disk_or_the_process(number: int, *, counts: bool) -> None:
    with pytest.raises(KafkaError) as refused, storage_errors("/logs"):
        raise OSError(number, os.strerror(number))
    assert is_of_disk(refused.value) is counts


def test_a_log_that_is_trusted_no_more_says_nothing_of_the_disk() -> None:
    assert not is_of_disk(KafkaError(ErrorCode.kafka_storage_error, "closed"))
