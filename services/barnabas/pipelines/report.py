"""What a person sees of the result: a table on the terminal and a plot in a file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.pipelines.results import Delay

if TYPE_CHECKING:
    from datetime import datetime

    from rich.table import Table


@dataclass
class Summary:
    """Sums over many windows, from which a mean over all their flights follows. Delays are minutes."""

    flights: int = 0
    cancelled: int = 0
    arrived: int = 0
    departure_delay_sum: float = 0.0
    arrival_delay_sum: float = 0.0

    def add(self, delay: Delay) -> None:
        """A window's mean stands for the flights it was taken over: those that departed (arrived)."""
        self.flights += delay.flights
        self.cancelled += delay.flights_cancelled
        self.arrived += delay.flights_arrived
        departed = delay.flights - delay.flights_cancelled
        self.departure_delay_sum += (delay.departure_delay_minutes_mean or 0.0) * departed
        self.arrival_delay_sum += (delay.arrival_delay_minutes_mean or 0.0) * delay.flights_arrived

    @property
    def departure_delay_mean(self) -> float:
        return self.departure_delay_sum / max(1, self.flights - self.cancelled)

    @property
    def arrival_delay_mean(self) -> float:
        return self.arrival_delay_sum / max(1, self.arrived)


def summarize(delays: Iterable[Delay]) -> dict[tuple[str, str], Summary]:
    """One summary a (carrier name, origin), over all windows, most flights first."""
    summaries: defaultdict[tuple[str, str], Summary] = defaultdict(Summary)
    for delay in delays:
        summaries[delay.carrier_name or delay.carrier, delay.origin].add(delay)
    return dict(sorted(summaries.items(), key=lambda item: -item[1].flights))


def delay_table(delays: Iterable[Delay]) -> Table:
    """The summaries as a table, with the totals of all flights as its footer."""
    from rich.table import Table

    summaries = summarize(delays)
    total = sum(summary.flights for summary in summaries.values())
    cancelled = sum(summary.cancelled for summary in summaries.values())
    table = Table(title="Departures from New York, 2013", show_footer=True)
    table.add_column("carrier", "all carriers", no_wrap=True)
    table.add_column("origin")
    table.add_column("flights", f"{total:,}", justify="right")
    table.add_column("cancelled", f"{cancelled:,}", justify="right")
    table.add_column("departure delay, min", justify="right")
    table.add_column("arrival delay, min", justify="right")
    for (carrier, origin), summary in summaries.items():
        table.add_row(
            carrier,
            origin,
            f"{summary.flights:,}",
            f"{summary.cancelled:,}",
            f"{summary.departure_delay_mean:.1f}",
            f"{summary.arrival_delay_mean:.1f}",
        )
    return table


def save_plot(delays: Iterable[Delay], path: Path) -> None:
    """A PNG: mean departure delay by day for each origin, and by carrier over the year."""
    # The figure is built without pyplot: no display is looked for and no global state is left behind.
    from matplotlib.figure import Figure

    days: defaultdict[str, defaultdict[datetime, Summary]] = defaultdict(lambda: defaultdict(Summary))
    carriers: defaultdict[str, Summary] = defaultdict(Summary)
    for delay in delays:
        days[delay.origin][delay.window_start].add(delay)
        carriers[delay.carrier_name or delay.carrier].add(delay)

    figure = Figure(figsize=(12, 9), layout="constrained")
    by_day, by_carrier = figure.subplots(2, 1)
    for origin, windows in sorted(days.items()):
        ordered = sorted(windows.items())
        means = [summary.departure_delay_mean for _, summary in ordered]
        by_day.plot([day for day, _ in ordered], means, label=origin, linewidth=1)
    by_day.set_title("Mean departure delay by day and origin")
    by_day.set_ylabel("minutes")
    by_day.legend()
    ranked = sorted(carriers.items(), key=lambda item: item[1].departure_delay_mean)
    by_carrier.barh([name for name, _ in ranked], [summary.departure_delay_mean for _, summary in ranked])
    by_carrier.set_title("Mean departure delay by carrier, all of 2013")
    by_carrier.set_xlabel("minutes")
    figure.savefig(path, dpi=110)
