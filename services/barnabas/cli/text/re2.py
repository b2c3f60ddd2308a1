"""Whether a text is a regular expression of RE2, the language of Kafka's server-side subscriptions (KIP-848).

RE2 lacks what needs backtracking: what Python's expressions can do and RE2 cannot is refused by name.
"""

from __future__ import annotations

import re
from typing import Final

from barnabas.cli.refusal import Refused

NOT_IN_RE2: Final = (
    (r"\(\?<?[=!]", "looks ahead or behind"),
    (r"\\[1-9]|\(\?P=", "refers back to a group"),
    (r"\(\?>", "has an atomic group"),
    (r"\(\?\(", "has a condition"),
    (r"[*+?}]\+", "has a possessive quantifier"),
    (r"\(\?#", "has a comment"),
)
REPETITIONS_MAX: Final = 1000
"""RE2's limit for {n,m}."""


def check_re2(expression: str) -> None:
    """Raise Refused that says why `expression` is none."""
    bare = re.sub(r"\\\\|\\[^1-9]|\[\]?[^\]]*\]", "x", expression)
    for pattern, what in NOT_IN_RE2:
        if re.search(pattern, bare):
            raise Refused(f"{expression!r} is no RE2 expression: it {what}")
    counts = [int(number) for pair in re.findall(r"\{(\d+)(?:,(\d*))?\}", bare) for number in pair if number]
    if max(counts, default=0) > REPETITIONS_MAX:
        raise Refused(f"{expression!r} is no RE2 expression: it repeats more than {REPETITIONS_MAX} times")
    try:
        # Python lacks RE2's \\pL, \\z, \\Q...\\E and (?U): they are taken out before it looks.
        plain = re.sub(r"\\[pP](\{\^?\w+\}|\w)|\\[zC]|\(\?U\)|\[:\^?\w+:\]", "x", expression)
        re.compile(re.sub(r"\\Q(.*?)(\\E|$)", lambda match: re.escape(match[1]), plain))
    except re.error as error:
        raise Refused(f"{expression!r} is no RE2 expression: {error}") from error
