"""`cordoned.log.dirs`: the log directories into which no new replica comes; what is there stays (KIP-1066)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

ALL: Final = "*"
"""Every log directory."""


def cordoned(paths: Iterable[str], value: tuple[str, ...]) -> set[str]:
    """Those of the node's directories that the setting's value names, as they are in `log.dirs` or by absolute path."""
    return {path for path in paths if ALL in value or path in value or os.path.abspath(path) in value}
