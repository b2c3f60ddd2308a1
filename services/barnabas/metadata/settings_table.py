"""Tables of settings that are read when somebody asks for them: a service starts without most of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from importlib import import_module

from barnabas.metadata.config_def import ConfigDef, Synonym
from barnabas.metadata.settings.row import Row


class SettingsTable(Mapping[str, ConfigDef]):
    """Settings by name, in the order of names. Owns what was read so far of the modules of `metadata.settings`.

    A lookup reads the modules in their order until one has the name, so the first ones hold what every service needs.
    """

    def __init__(
        self,
        modules: Sequence[str],
        *,
        with_effect: Collection[str] = (),
        internal: Collection[str] = (),
        synonyms: Callable[[str], tuple[Synonym, ...]] = lambda name: (),
    ) -> None:
        self._unread = list(modules)
        self._read: dict[str, ConfigDef] = {}
        self._with_effect = with_effect
        self._internal = internal
        self._synonyms = synonyms

    def __getitem__(self, name: str) -> ConfigDef:
        while name not in self._read and self._unread:
            self._read_next()
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        while self._unread:
            self._read_next()
        return iter(sorted(self._read))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _read_next(self) -> None:
        for row in rows_of(self._unread.pop(0)):
            assert row[0] not in self._read, f"{row[0]} is defined twice"
            self._read[row[0]] = self._definition(row)

    def _definition(self, row: Row) -> ConfigDef:
        name, type_, default, validator, importance, update_mode, documentation = row
        return ConfigDef(
            name,
            type_,
            default,
            documentation,
            validator,
            importance,
            self._synonyms(name),
            update_mode,
            name in self._with_effect,
            name in self._internal,
        )


def rows_of(module: str) -> Sequence[Row]:
    """The rows of one module of `metadata.settings`."""
    rows: Sequence[Row] = import_module(f"barnabas.metadata.settings.{module}").SETTINGS
    return rows
