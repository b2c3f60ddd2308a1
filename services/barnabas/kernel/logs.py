"""Structured logs on the standard library: an event in words, then its fields.

`text` for people (`12:30:01.123 INFO  gateway  connection closed  client_id=app reason=...`), `json` for
collectors (one object a line). Logs go to stderr. `logger.bind(**fields)` adds the identity of a connection or
request to every line.
"""

from __future__ import annotations

import functools
import json
import logging
import sys
import time
from collections.abc import Callable, Collection
from typing import Any, Final

LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")
STYLES: Final = ("text", "json")

_LEVEL_WIDTH: Final = 5


class StructuredLogger:
    """Logs events with fields. Cheap when the level is off: fields are formatted only for lines that are kept."""

    __slots__ = ("_fields", "_logger")

    def __init__(self, logger: logging.Logger, fields: dict[str, object] | None = None) -> None:
        self._logger = logger
        self._fields = fields or {}

    def bind(self, **fields: object) -> StructuredLogger:
        """A logger that adds `fields` to every event."""
        return StructuredLogger(self._logger, {**self._fields, **fields})

    def debug(self, event: str, **fields: object) -> None:
        self._log(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: object) -> None:
        self._log(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._log(logging.WARNING, event, fields)

    def error(self, event: str, **fields: object) -> None:
        self._log(logging.ERROR, event, fields)

    def exception(self, event: str, **fields: object) -> None:
        """As `error`, with the traceback of the exception being handled."""
        self._log(logging.ERROR, event, fields, exc_info=True)

    def _log(self, level: int, event: str, fields: dict[str, object], *, exc_info: bool = False) -> None:
        if self._logger.isEnabledFor(level):
            merged = {**self._fields, **fields}
            self._logger.log(level, event, extra={"fields": merged}, exc_info=exc_info)


def get_logger(name: str) -> StructuredLogger:
    """The logger of one part, such as `gateway.connection`."""
    return StructuredLogger(logging.getLogger(f"barnabas.{name}"))


def configure_logs(
    service: str, *, level: str = "INFO", style: str = "text", hosted: Collection[str] = ()
) -> None:
    """Send this process's logs to stderr. `level` is a name of `logging`, `style` is text or json.

    What a service that the process has `hosted` says is told under that service's name.
    """
    handler = logging.StreamHandler(sys.stderr)
    name_of = functools.partial(_service_of, service, frozenset(hosted))
    handler.setFormatter(_JsonFormatter(name_of) if style == "json" else _TextFormatter(name_of))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("barnabas").setLevel(level.upper())


def _service_of(process: str, hosted: frozenset[str], record: logging.LogRecord) -> str:
    """The service that a line is from: the first part of its logger's name, where that is hosted here."""
    part = record.name.removeprefix("barnabas.").partition(".")[0]
    return part if part in hosted else process


def _fields_of(record: logging.LogRecord) -> dict[str, Any]:
    return getattr(record, "fields", {})


class _TextFormatter(logging.Formatter):
    def __init__(self, service_of: Callable[[logging.LogRecord], str]) -> None:
        super().__init__()
        self._service_of = service_of

    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        line = f"{clock}.{int(record.msecs):03d} {record.levelname:<{_LEVEL_WIDTH}} {self._service_of(record):<11} "
        line += record.getMessage()
        for name, value in _fields_of(record).items():
            text = str(value)
            line += f" {name}={json.dumps(text) if ' ' in text or not text else text}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class _JsonFormatter(logging.Formatter):
    def __init__(self, service_of: Callable[[logging.LogRecord], str]) -> None:
        super().__init__()
        self._service_of = service_of

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "service": self._service_of(record),
            "logger": record.name,
            "event": record.getMessage(),
            **_fields_of(record),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)
