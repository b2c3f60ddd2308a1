"""How helpers fail: as assertions, so that pytest reports a failed test and not a broken one."""

from __future__ import annotations


class ClusterFailed(AssertionError):
    """The cluster did not start, or refused what the test asked of it."""


class TimedOut(AssertionError):
    """What a test waited for did not happen in time; the message says what there was instead."""
