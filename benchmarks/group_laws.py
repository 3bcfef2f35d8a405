"""Laws of scores in any number of groups, whose population rates are known in closed form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from time import process_time

import numpy as np
from common import Floats, Integers, Timing, cpu_time
from scipy.optimize import brentq
from scipy.special import ndtr
from scipy.stats import binom

from fairdial import CannotCertifyError, Frontier, criterion, sweep
from fairdial.core.certificates import crossing, inner_tolerance
from fairdial.core.pairwise import Pair, rejects_pair

CONFIDENCE = 0.95
END = 1.0  # of clipped scores
NEGLIGIBLE = 1e-9  # probability of a count that isn't computed
SEPARATION = 1.2  # half the distance between the means of the two labels


@dataclass(frozen=True)
class GroupLaw:
    """Normal scores by group and label, as they are, rounded, or clipped.

    Attributes
    ----------
    sizes : tuple of int
        Calibration rows of each group.
    shifts : tuple of float
        Shift of each group's scores.
    base : float
        Share of positive labels.
    scores : {"continuous", "tied", "saturated"}
        What is done to the scores.
    step : float
        What tied scores are rounded to.
    """

    name: str
    sizes: tuple[int, ...]
    shifts: tuple[float, ...]
    base: float = 0.5
    scores: str = "continuous"
    step: float = 0.5

    def draw(self, rng: np.random.Generator, times: int = 1) -> tuple[Floats, Integers, Integers]:
        """Draw scores, groups and labels."""
        groups = np.repeat(np.arange(len(self.sizes)), np.array(self.sizes) * times)
        y = (rng.random(len(groups)) < self.base).astype(np.int64)
        mean = np.take(self.shifts, groups) + SEPARATION * (2 * y - 1)
        return self.change(rng.normal(mean, 1.5)), groups, y

    def change(self, scores: Floats) -> Floats:
        """Round or clip scores."""
        if self.scores == "tied":
            return np.round(scores / self.step) * self.step
        return np.clip(scores, -END, END) if self.scores == "saturated" else scores

    def above(self, thresholds: Floats) -> Floats:
        """Return the unchanged scores above which rows are selected."""
        if self.scores == "tied":
            return (np.floor(thresholds / self.step) + 0.5) * self.step
        if self.scores == "saturated":
            inside = np.where(thresholds < -END, -np.inf, thresholds)
            return np.where(thresholds >= END, np.inf, inside)
        return thresholds

    def gap(self, name: str, thresholds: Floats) -> float:
        """Return the population gap of thresholds, (K,), for a criterion."""
        kind, limit = criterion(name), self.above(thresholds)
        shifts = np.array(self.shifts)
        rates = [ndtr((shifts + s * SEPARATION - limit) / 1.5) for s in (-1, 1)]
        cells = np.array([1 - self.base, self.base])[:, None] * np.ones(len(shifts))
        return float(kind.gap_of(cells * np.array(rates), cells))


def spread(n_groups: int, width: float) -> tuple[float, ...]:
    """Return evenly spaced shifts."""
    return tuple(np.linspace(-width, 0.0, n_groups).tolist())


LADDER = ((2, (0.15,)), (3, (0.20,)), (5, (0.25,)), (10, (0.22, 0.32)), (30, (0.26, 0.40)))
FIVE = (157, 236, 95, 3353, 162)  # as many as Law School's races
FIVE_SHIFTS = (1.9, 2.5, 1.5, 6.0, 1.7)  # selection rates from about 0.75 to 1


def laws() -> Iterator[tuple[GroupLaw, str, float]]:
    """Yield laws with a criterion and a tolerance each."""
    for n_groups, tolerances in LADDER:
        law = GroupLaw(f"{n_groups} groups", (400,) * n_groups, spread(n_groups, 1.0))
        for tolerance in tolerances:
            yield law, "demographic_parity", tolerance
    two = GroupLaw("2 groups", (1200, 1000), spread(2, 1.0))
    for name, tolerance in (
        ("equal_opportunity", 0.15),
        ("predictive_equality", 0.15),
        ("equalized_odds", 0.15),
        ("accuracy_parity", 0.08),
    ):
        yield two, name, tolerance
    three = GroupLaw("3 groups", (800, 700, 900), spread(3, 0.8))
    for name, tolerance in (
        ("equal_opportunity", 0.15),
        ("predictive_equality", 0.15),
        ("false_negative_rate_parity", 0.15),
        ("equalized_odds", 0.2),
        ("accuracy_parity", 0.08),
        ("predictive_parity", 0.15),
        ("false_omission_rate_parity", 0.15),
        ("demographic_parity_ratio", 0.3),
        ("demographic_parity+true_positive_rate>=0.6", 0.15),
        ("demographic_parity+false_positive_rate<=0.2", 0.15),
    ):
        yield three, name, tolerance
    sizes = (500, 400, 450)
    yield GroupLaw("tied scores", sizes, spread(3, 1.0), scores="tied"), "demographic_parity", 0.2
    law = GroupLaw("saturated scores", sizes, spread(3, 1.0), scores="saturated")
    yield law, "demographic_parity", 0.2
    for name, sizes in (("sizes 1:100", (60, 6000)), ("sizes 1:10:100", (60, 600, 6000))):
        law = GroupLaw(name, sizes, spread(len(sizes), 1.0))
        yield law, "demographic_parity", 0.2
    sizes = (500, 400, 450)
    yield GroupLaw("rates near 0", sizes, (-3.5, -3.0, -4.0), 0.2), "demographic_parity", 0.05
    yield GroupLaw("rates near 1", sizes, (3.5, 3.0, 4.0), 0.8), "demographic_parity", 0.05
    law = GroupLaw("two groups, rates near 0.2", (500, 500), (-2.6, -2.0), 0.4)
    yield law, "demographic_parity", 0.10
    law = GroupLaw("near the unconstrained gap", (2000, 2000, 2000), spread(3, 0.5))
    yield law, "demographic_parity", law.gap("demographic_parity", np.zeros(3)) - 0.005
    for n_groups in (2, 3, 5):  # no rule is just within the tolerance, and one is just above it
        law = GroupLaw(
            f"{n_groups} groups, three scores",
            (2000,) * n_groups,
            spread(n_groups, 0.6),
            scores="tied",
            step=4.0,
        )
        above = law.gap("demographic_parity", np.zeros(n_groups))
        yield law, "demographic_parity", above - 0.0005


@dataclass
class Tally:
    """What certificates did over draws."""

    wrong: int = 0
    certified: int = 0
    gaps: list[float] = field(default_factory=list)
    theorems: set[int] = field(default_factory=set)
    seconds: list[float] = field(default_factory=list)


def _unknown(*_: float) -> float:
    return 1.0


def run_law(
    law: GroupLaw, name: str, tolerance: float, draws: int, seed: int, *, guided: bool = False
) -> Tally:
    """Certify a declared tolerance on draws of calibration rows."""
    tally = Tally()
    for i in range(draws):
        rng = np.random.default_rng([seed, i])
        frontier = sweep(*law.draw(rng), criterion=name)
        if guided:
            frontier = frontier.guided_by(sweep(*law.draw(rng, 3), criterion=name))
        frontier._certifier.smallest = _unknown  # what refusals say takes most of the time
        start = process_time()
        try:
            point = frontier.at(tolerance, confidence=CONFIDENCE)
        except CannotCertifyError:
            continue
        tally.seconds.append(process_time() - start)
        gap = law.gap(name, point.thresholds)
        tally.certified += 1
        tally.wrong += gap > tolerance
        tally.gaps.append(gap)
        tally.theorems.add(int(point.theorem or 0))
    return tally


def cells(tally: Tally, draws: int) -> list[str]:
    """Return the columns of a table."""
    mean = f"{np.mean(tally.gaps):.4f}" if tally.gaps else "-"
    used = ", ".join(map(str, sorted(tally.theorems))) or "-"
    return [f"{tally.certified / draws:.1%}", f"{tally.wrong / draws:.1%}", mean, used]


def law_lines(
    draws: int, seed: int, every: int = 1, name: str | None = None
) -> Iterator[list[str]]:
    """Yield one line per law: how often it is certified, and certified and wrong.

    With ``every``, or a ``name`` such as "tied scores" or "2 groups, equalized_odds", only some of
    the laws are drawn.
    """
    chosen = [each for each in laws() if name in (None, each[0].name, f"{each[0].name}, {each[1]}")]
    for law, kind, tolerance in islice(chosen, 0, None, every):
        tally = run_law(law, kind, tolerance, draws, seed)
        yield [law.name, kind, f"{tolerance:.3f}", *cells(tally, draws)]


def five_lines(draws: int, seed: int, tolerances: Sequence[float]) -> Iterator[list[str]]:
    """Yield the power of five groups of very different sizes, with and without a guide."""
    law = GroupLaw("five groups", FIVE, FIVE_SHIFTS)
    for guided in (True, False):
        rows = "three times as many others" if guided else "30% of the rows"
        for tolerance in tolerances:
            tally = run_law(law, "demographic_parity", tolerance, draws, seed, guided=guided)
            yield [rows, f"{tolerance:.2f}", *cells(tally, draws)]


def margin_lines() -> Iterator[list[str]]:
    """Yield how far below a tolerance of 0.1 the gap on the rows must be, at rates near 0.2."""
    tolerance, alpha = 0.1, 1 - CONFIDENCE
    for rows in (500, 5_000, 50_000):
        level = alpha - 2 * crossing((rows, rows), tolerance)  # theorem 1
        low, high = 0, round(tolerance * rows)
        while high - low > 1:
            gap = (low + high) // 2
            least = round(0.2 * rows) - gap // 2
            enough = rejects_pair(Pair(least + gap, rows, least, rows, tolerance), level)
            low, high = (gap, high) if enough else (low, gap)
        old = tolerance - inner_tolerance((rows, rows), tolerance, alpha)
        yield [f"{rows:,}", f"{tolerance - low / rows:.4f}", f"{old:.4f}"]


def error_lines() -> Iterator[list[str]]:
    """Yield, for laws of two groups, the exact probability that a rule at the tolerance passes.

    This is the first part of theorem 1's error; the second bounds a change of sign.
    """
    for law, name, tolerance in laws():
        if len(law.sizes) != 2 or law.scores != "continuous" or law.sizes[0] != law.sizes[1]:
            continue

        def excess(t: float, law: GroupLaw = law, limit: float = tolerance) -> float:
            return law.gap("demographic_parity", np.array([-t, t])) - limit

        crossed = 2 * crossing((law.sizes[0], law.sizes[1]), tolerance)
        if excess(0.0) <= 0:  # no rule has this gap
            continue
        t = brentq(excess, 0.0, np.ptp(law.shifts) / 2)  # equal shares: thresholds are -t and t
        limits = (np.array(law.shifts) - np.array([-t, t])) / 1.5
        high_or_low = [
            law.base * ndtr(z + SEPARATION / 1.5) + (1 - law.base) * ndtr(z - SEPARATION / 1.5)
            for z in limits
        ]
        passes = border_error(
            law.sizes[0], *sorted(high_or_low), tolerance, 1 - CONFIDENCE - crossed
        )
        yield [law.name, name, f"{tolerance:.3f}", f"{passes:.4f}", f"{crossed:.1e}"]


def border_error(rows: int, low: float, high: float, limit: float, alpha: float) -> float:
    """Return the probability that the pair test rejects a difference of exactly the limit.

    Whatever the counts of the group with the high rate, the test rejects from some count of the
    other one on: the probabilities of all rejected counts are added up.
    """
    counts = np.arange(rows + 1)
    of_high, of_low = binom.pmf(counts, rows, high), binom.sf(counts - 1, rows, low)
    total, least = 0.0, 0
    for count in np.flatnonzero(of_high > NEGLIGIBLE).tolist():
        first, last = least, rows + 1
        while first < last:
            middle = (first + last) // 2
            rejected = rejects_pair(Pair(count, rows, middle, rows, limit), alpha)
            first, last = (first, middle) if rejected else (middle + 1, last)
        least = first  # it rises with the count (lemma 1)
        total += float(of_high[count] * (of_low[first] if first <= rows else 0.0))
    return total + NEGLIGIBLE * (rows + 1)


def timing_lines(seed: int, repeats: int = 5) -> Iterator[list[str]]:
    """Yield the processor time of a certified tolerance: the first one, and another one."""
    law = GroupLaw("", (5_000,) * 10, spread(10, 0.6))
    rows = law.draw(np.random.default_rng(seed))
    found: dict[str, list[Timing]] = {"first": [], "next": []}
    for _ in range(repeats):
        frontier = sweep(*rows)
        for what, tolerance in (("first", 0.1), ("next", 0.12)):

            def certify(frontier: Frontier = frontier, tolerance: float = tolerance) -> None:
                frontier.at(tolerance, confidence=CONFIDENCE)

            found[what].append(cpu_time(certify, 1))
    for what, timings in found.items():
        yield [what, f"{min(timing.seconds for timing in timings) * 1000:.0f} ms"]
