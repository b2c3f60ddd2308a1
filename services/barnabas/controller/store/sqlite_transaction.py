"""The SQL of the SQLite store: schema, transactions, history. Runs in the store's own thread.

Tables: `entries` is what is stored now, `history` what each recent revision changed (a NULL value is a deletion),
`state` one row with the revision and the oldest revision that the history still has.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

from barnabas.controller.store.protocol import (
    Compare,
    CompareFailed,
    Delete,
    DeletePrefix,
    KeyAbsent,
    ModRevisionEquals,
    Operation,
    Put,
    Snapshot,
    StoreDamaged,
    StoredValue,
    ValueEquals,
)

APPLICATION_ID: Final = 0x42524E42
"""SQLite's application id of our file: "BRNB"."""

SCHEMA_VERSION: Final = 1

_SCHEMA: Final = (
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
    "CREATE TABLE entries (key TEXT PRIMARY KEY, value BLOB NOT NULL, mod_revision INTEGER NOT NULL,"
    " lease_id INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE history (revision INTEGER NOT NULL, key TEXT NOT NULL, value BLOB,"
    " PRIMARY KEY (revision, key)) WITHOUT ROWID",
    "CREATE TABLE state (revision INTEGER NOT NULL, oldest INTEGER NOT NULL)",
    "INSERT INTO state VALUES (0, 1)",
)

_HIGHEST: Final = "\U0010ffff"


def prefix_range(prefix: str) -> tuple[str, str]:
    """The half-open range of keys that start with `prefix`."""
    return prefix, prefix + _HIGHEST


def check_file(connection: sqlite3.Connection, path: Path) -> bool:
    """True when the file is new and empty. Raises StoreDamaged when it is not our store or is damaged."""
    if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
        return True
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise StoreDamaged(f"{path} is a SQLite file of another program: set another data_dir")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version != SCHEMA_VERSION:
        raise StoreDamaged(f"{path} has schema version {version}, this program reads {SCHEMA_VERSION}")
    verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if verdict != "ok":
        raise StoreDamaged(f"the metadata store {path} is damaged ({verdict}): restore it from a backup")
    return False


def create_schema(connection: sqlite3.Connection) -> None:
    for statement in _SCHEMA:
        connection.execute(statement)


class Database:
    """Owner of the connection and of the revision counter."""

    def __init__(self, connection: sqlite3.Connection, history_revisions_max: int) -> None:
        self._connection = connection
        self._history_revisions_max = history_revisions_max
        self._revision, self._oldest = connection.execute("SELECT revision, oldest FROM state").fetchone()

    def close(self) -> None:
        self._connection.close()

    def transact(self, compares: Iterable[Compare], operations: Sequence[Operation]) -> tuple[int, bool]:
        """The revision after the transaction, and whether it changed anything."""
        for compare in compares:
            self._check(compare)
        revision = self._revision + 1
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        try:
            changed = False
            for operation in operations:
                changed |= self._apply(operation, revision)
            if changed:
                oldest = max(self._oldest, revision - self._history_revisions_max + 1)
                execute("DELETE FROM history WHERE revision < ?", (oldest,))
                execute("UPDATE state SET revision = ?, oldest = ?", (revision, oldest))
            execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                execute("ROLLBACK")
            raise
        if changed:
            self._revision, self._oldest = revision, oldest
        return self._revision, changed

    def _check(self, compare: Compare) -> None:
        row = self._connection.execute(
            "SELECT value, mod_revision FROM entries WHERE key = ?", (compare.key,)
        ).fetchone()
        match compare:
            case KeyAbsent():
                holds = row is None
            case ModRevisionEquals():
                holds = row is not None and row[1] == compare.revision
            case ValueEquals():
                holds = row is not None and row[0] == compare.value
        if not holds:
            raise CompareFailed(f"the store changed: {compare} does not hold")

    def _apply(self, operation: Operation, revision: int) -> bool:
        match operation:
            case Put(key, value, lease_id):
                self._connection.execute(
                    "INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)", (key, value, revision, lease_id)
                )
                self._record(revision, key, value)
                return True
            case Delete(key):
                return self._delete([key], revision)
            case DeletePrefix(prefix):
                rows = self._connection.execute(
                    "SELECT key FROM entries WHERE key >= ? AND key < ?", prefix_range(prefix)
                ).fetchall()
                return self._delete([row[0] for row in rows], revision)

    def _delete(self, keys: list[str], revision: int) -> bool:
        changed = False
        for key in keys:
            if self._connection.execute("DELETE FROM entries WHERE key = ?", (key,)).rowcount:
                self._record(revision, key, None)
                changed = True
        return changed

    def _record(self, revision: int, key: str, value: bytes | None) -> None:
        self._connection.execute("INSERT INTO history VALUES (?, ?, ?)", (revision, key, value))

    def end_lease(self, lease_id: int) -> None:
        rows = self._connection.execute("SELECT key FROM entries WHERE lease_id = ?", (lease_id,)).fetchall()
        self.transact((), [Delete(row[0]) for row in rows])

    def end_all_leases(self) -> None:
        """The leases of the process that had the file before: it is gone, so they are."""
        rows = self._connection.execute("SELECT key FROM entries WHERE lease_id <> 0").fetchall()
        self.transact((), [Delete(row[0]) for row in rows])

    def snapshot(self, prefix: str) -> Snapshot:
        rows = self._connection.execute(
            "SELECT key, value, mod_revision FROM entries WHERE key >= ? AND key < ?", prefix_range(prefix)
        )
        return Snapshot(self._revision, {key: StoredValue(value, revision) for key, value, revision in rows})

    def read_history(
        self, start: int, low: str, high: str, revisions_max: int
    ) -> tuple[int, int, list[tuple[int, list[tuple[str, bytes | None]]]]]:
        """(oldest revision kept, last revision that was looked at, changes by revision from `start` on)."""
        last = min(self._revision, start + revisions_max - 1)
        rows = self._connection.execute(
            "SELECT revision, key, value FROM history WHERE revision BETWEEN ? AND ? AND key >= ? AND key < ?"
            " ORDER BY revision",
            (start, last, low, high),
        ).fetchall()
        batch = [
            (revision, [(key, value) for _, key, value in group])
            for revision, group in groupby(rows, key=lambda row: int(row[0]))
        ]
        return self._oldest, last, batch
