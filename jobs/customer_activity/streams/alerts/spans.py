"""Spans of event time: which of them purchases are in, or a file's first to last."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]


class Spans(NamedTuple):
    """Spans that do not touch, in order: begins and ends (inclusive) in microseconds since 1970."""

    begins: Numbers
    ends: Numbers

    @classmethod
    def of(cls, begins: Numbers, ends: Numbers) -> Spans:
        """Return spans that may overlap, in any order, as some that do not."""
        order = np.argsort(begins, kind="stable")
        begins, ends = begins[order], np.maximum.accumulate(ends[order])
        is_first = np.r_[True, begins[1:] > ends[:-1]][: len(begins)]
        is_last = np.r_[is_first[1:], True][: len(begins)]
        return cls(begins[is_first], ends[is_last])

    def at_most(self, count: int) -> Spans:
        """Return so many at most that cover these: what is nearest to one another becomes one."""
        if len(self.begins) <= count:
            return self
        gaps = self.begins[1:] - self.ends[:-1]
        kept = np.sort(np.argsort(gaps, kind="stable")[len(gaps) - count + 1 :])
        return Spans(self.begins[np.r_[0, kept + 1]], self.ends[np.r_[kept, len(gaps)]])

    def meet(self, firsts: Numbers, lasts: Numbers) -> npt.NDArray[np.bool_]:
        """Whether something from first to last meets one of them."""
        return np.searchsorted(self.ends, firsts) < np.searchsorted(self.begins, lasts, side="right")
