"""Whether a partition's log may still be written: it is open, and its files are what memory says."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.kernel.errors import ErrorCode, KafkaError


class Trust:
    """Owner of whether the log is closed, and of why nothing more may be written to it.

    A failed sync is final: the system reports it once, and what it was about may be gone while memory still shows
    it. So is a truncation or a swap that could not be finished. The log takes nothing from then on, its recovery point
    stays, it cannot be closed properly, and the next opening checks every batch from the recovery point on.
    """

    def __init__(self, directory: str) -> None:
        self.is_closed = False
        self._directory = directory
        self._distrusted: KafkaError | None = None
        self.on_distrusted: Callable[[KafkaError], object] = _tell_nobody
        """Called once, in whatever thread, with what `check_trusted` raises from then on."""

    @property
    def is_trusted(self) -> bool:
        """Whether what is on disk is what is in memory; if not, only opening the log anew helps."""
        return self._distrusted is None

    def check_writable(self) -> None:
        """Raises KAFKA_STORAGE_ERROR when the log is closed, or its files may be other than memory says."""
        if self.is_closed or self._distrusted is not None:
            self.check_open()
            self.check_trusted()

    def check_open(self) -> None:
        """Raises KAFKA_STORAGE_ERROR when the log is closed."""
        if self.is_closed:
            raise KafkaError(ErrorCode.kafka_storage_error, f"{self._directory}: the log is closed")

    def check_trusted(self) -> None:
        """Raises what `distrust` was told."""
        if self._distrusted is not None:
            raise self._distrusted

    def distrust(self, error: BaseException) -> None:
        """From now on nothing is written or vouched for: only opening the log anew, with every check, helps."""
        if self._distrusted is None:
            self._distrusted = KafkaError(
                ErrorCode.kafka_storage_error, f"{self._directory} has to be opened and checked anew: {error}"
            )
            self.on_distrusted(self._distrusted)


def _tell_nobody(_: KafkaError) -> None:
    pass
