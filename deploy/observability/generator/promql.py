"""Queries as the dashboards write them: every selector has the dashboard's variables."""

from __future__ import annotations

from typing import Final

C: Final = 'cluster=~"$cluster"'
RATE: Final = "$__rate_interval"


def selector(*matchers: str) -> str:
    return "{" + ", ".join((C, *matchers)) + "}"


def rate(metric: str, *matchers: str, by: str = "") -> str:
    """The sum of a counter's rates, by these labels."""
    return f"{total_by(by)} (rate({metric}{selector(*matchers)}[{RATE}]))"


def total(metric: str, *matchers: str, by: str = "") -> str:
    """The sum of a gauge, by these labels."""
    return f"{total_by(by)} ({metric}{selector(*matchers)})"


def total_by(by: str) -> str:
    return f"sum by ({by})" if by else "sum"


def quantile(share: float, metric: str, *matchers: str, by: str = "") -> str:
    """The quantile of a histogram; 0 where nothing was observed."""
    labels = f"{by}, le" if by else "le"
    measured = f"rate({metric}_bucket{selector(*matchers)}[{RATE}])"
    quantiles = f"histogram_quantile({share:g}, sum by ({labels}) ({measured}))"
    # Without observations a quantile is not a number, which a panel shows as a gap.
    return f"({quantiles} >= 0) or sum by ({by}) ({metric}_count{selector(*matchers)}) * 0"
