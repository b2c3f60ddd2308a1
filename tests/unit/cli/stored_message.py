"""A message with confluent_kafka's methods, made of plain values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StoredMessage:
    """`stamp` is (type, ms): type 1 for CreateTime, 2 for LogAppendTime, 0 for none."""

    data: bytes | None = b"value"
    name: bytes | None = b"key"
    pairs: tuple[tuple[str, bytes | None], ...] = ()
    stamp: tuple[int, int] = (1, 1_700_000_000_000)
    where: tuple[str, int, int] = ("orders", 2, 7)

    def value(self) -> bytes | None:
        return self.data

    def key(self) -> bytes | None:
        return self.name

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return list(self.pairs) or None

    def timestamp(self) -> tuple[int, int]:
        return self.stamp

    def topic(self) -> str:
        return self.where[0]

    def partition(self) -> int:
        return self.where[1]

    def offset(self) -> int:
        return self.where[2]
