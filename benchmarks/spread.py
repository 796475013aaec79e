"""What large batches cost on executors, judged: figures of several runs against what they must be."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

Figures = Mapping[str, float]
Measured = dict[tuple["Case", str], dict[str, float]]

EXECUTORS, DRIVER = "executors", "driver"
ALL = "all"  # the streams together
MOST_BYTES_A_FILE = 2_048


class Case(NamedTuple):
    """What is measured.

    Attributes:
        purchases: of the batch.
        workers: of one core each.
        hot: share of the purchases that one customer has made.
        placement: where batches are worked on.
    """

    purchases: int
    workers: int = 2
    hot: float = 0.0
    placement: str = EXECUTORS


class Verdict(NamedTuple):
    """A figure and what it must be.

    Attributes:
        what: it says.
        of: which stream's, or of which.
        measured: the figure.
        wanted: in words.
        is_met: whether it is so.
    """

    what: str
    of: str
    measured: float
    wanted: str
    is_met: bool


def cases(purchases: Sequence[int], workers: Sequence[int], hot: float) -> list[Case]:
    """Return what one command measures: batches of several sizes, and the largest in other ways.

    The first number of workers is for all of it, each other one for the largest batch alone, which is also measured in
    the driver.
    """
    usual, *others = workers
    largest = max(purchases)
    return [
        *(Case(number, usual) for number in sorted(purchases)),
        *(Case(largest, number) for number in others),
        *([Case(largest, usual, hot)] if hot else []),
        Case(largest, usual, placement=DRIVER),
    ]


def medians(runs: Iterable[tuple[Case, str, Mapping[str, object]]]) -> Measured:
    """Return of each case and stream, and of all streams together, the medians of the figures of its runs."""
    found: dict[tuple[Case, str], list[Figures]] = defaultdict(list)
    for case, query, figures in runs:
        found[case, query].append({name: value for name, value in figures.items() if isinstance(value, int | float)})
    measured = {
        key: {name: statistics.median(each[name] for each in of) for name in of[0]} for key, of in found.items()
    }
    for together in dict.fromkeys(case for case, _ in found):
        of_case = [figures for (case, _), figures in measured.items() if case == together]
        measured[together, ALL] = {name: sum(figures[name] for figures in of_case) for name in of_case[0]}
        measured[together, ALL]["driver_mb"] = max(figures["driver_mb"] for figures in of_case)
    return measured


def total(figures: Figures) -> float:
    """Return the processor seconds of driver and executors during the batches."""
    return figures["driver_cpu"] + figures["executors_cpu"]


def with_next(figures: Figures) -> float:
    """Return those of a batch and of the small one after it, which keeps what the large one has left for later."""
    return total(figures) + figures["next_cpu"]


def share_of_executors(smaller: Figures, larger: Figures) -> float:
    """Return which share of what a larger batch costs more was the executors'."""
    more = total(larger) - total(smaller)
    return (larger["executors_cpu"] - smaller["executors_cpu"]) / more if more > 0 else float("nan")


def judged(measured: Measured, of: Sequence[Case]) -> Iterator[Verdict]:
    """Compare what was measured with what it must be; what was not measured is left out.

    Args:
        measured: as `medians` returns it.
        of: the cases, as `cases` returns them.
    """
    usual = of[0].workers
    sizes = [case for case in of if case.placement == EXECUTORS and case.workers == usual and not case.hot]
    queries = list(dict.fromkeys(query for _, query in measured))
    for query in queries:
        by_size = [measured[case, query] for case in sizes if (case, query) in measured]
        if len(by_size) > 1:
            yield from _of_sizes(query, by_size)
        if by_size:
            others = [case for case in of if case not in sizes and (case, query) in measured]
            yield from _of_ways(query, by_size, [(case, measured[case, query]) for case in others])


def _of_sizes(query: str, by_size: Sequence[Figures]) -> Iterator[Verdict]:
    memory = [figures["driver_mb"] for figures in by_size]
    yield _at_most("driver's peak memory, largest to smallest", query, max(memory) / min(memory), 1.1)
    shares = [share_of_executors(a, b) for a, b in pairwise(by_size)]
    share = round(min(shares), 3)
    yield Verdict("executors' share of each further million", query, share, "≥ 0.95", share >= 0.95)
    size = max(figures["result_bytes"] / max(1, figures["files"]) for figures in by_size)
    yield _at_most("bytes into the driver a file", query, size, MOST_BYTES_A_FILE)


def _of_ways(query: str, by_size: Sequence[Figures], found: Sequence[tuple[Case, Figures]]) -> Iterator[Verdict]:
    largest = by_size[-1]
    for case, figures in found:
        if case.placement == DRIVER:
            yield _ratio("processor time, executors to driver", query, with_next, (largest, figures), 1.3)
            yield _ratio("the same without the batch after it (not judged)", query, total, (largest, figures), math.inf)
        elif case.hot:
            yield _ratio("processor time, hot key to none", query, total, (figures, largest), 1.5)
            yield _ratio("seconds, hot key to none", query, _seconds, (figures, largest), 1.5)
        elif case.workers == 1:
            yield _ratio("busier worker's processor time, two workers to one", query, _busier, (largest, figures), 0.55)
            yield _ratio("processor time, two workers to one", query, total, (largest, figures), 1.15)
            yield _ratio("seconds, two workers to one (not judged)", query, _seconds, (largest, figures), math.inf)


def _busier(figures: Figures) -> float:
    return figures["busier_cpu"]


def _seconds(figures: Figures) -> float:
    return figures["batch_seconds"]


def _ratio(
    what: str, of: str, figure: Callable[[Figures], float], compared: tuple[Figures, Figures], most: float
) -> Verdict:
    above, below = map(figure, compared)
    return _at_most(what, of, above / below if below else float("nan"), most)


def _at_most(what: str, of: str, measured: float, most: float) -> Verdict:
    return Verdict(what, of, round(measured, 3), f"≤ {most:,}", measured <= most)
