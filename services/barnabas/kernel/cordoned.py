"""What a value of `cordoned.log.dirs` names: the log directories into which no new replica comes (KIP-1066)."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Final

ALL_DIRECTORIES: Final = "*"
"""Every log directory of the node."""


def cordoned_directories(directories: Collection[str], value: Collection[str]) -> set[str]:
    """Those of a node's directories that the value names. A relative path and the absolute one mean the same."""
    if ALL_DIRECTORIES in value:
        return set(directories)
    named = {os.path.abspath(each) for each in value}
    return {each for each in directories if os.path.abspath(each) in named}


def problem_of_cordons(directories: Collection[str], value: Collection[str]) -> str:
    """What is wrong with the value for a node with these directories; empty for nothing."""
    if ALL_DIRECTORIES in value:
        return "" if len(value) == 1 else "cordoned.log.dirs: * stands for all directories, and alone"
    unknown = [each for each in value if not cordoned_directories(directories, [each])]
    if not unknown:
        return ""
    names = ", ".join(unknown)
    return f"cordoned.log.dirs names {names}, which log.dirs does not have: it has {', '.join(directories)}"


def are_all_cordoned(directories: Collection[str], value: Collection[str]) -> bool:
    """Whether nothing new comes to the node; `*` says so also where its directories are not known."""
    if ALL_DIRECTORIES in value:
        return True
    return bool(directories) and cordoned_directories(directories, value) == set(directories)
