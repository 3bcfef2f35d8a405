"""Measure how often the gap exceeds the tolerance on new rows, and what confidence costs.

    python benchmarks/coverage.py [--draws 1000] [--quick] [--only groups|error] [--law NAME]
        [--record FILE]

The first table draws calibration rows from a Gaussian law, with a fixed number of eligible rows in
each group and the true log-odds as scores. Every rule sees the same draws; the *population* gap and
accuracy of its thresholds are computed exactly from the law (for a randomized rule, as a mixture).
The second table does the same for model families. The third trains gradient boosting on Adult and
compares accuracy on test rows with and without confidence. The others (``--only groups``) are about
any number of groups and all criteria; ``--law`` draws only the laws of this name.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import group_laws
import numpy as np
from common import TWO_GROUPS, Floats, Integers, Report, Rows, log_odds, machine
from peers import MISSING, Fairlearn, OxonFair, quiet
from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import threadpool_limits

from fairdial import (
    CannotCertifyError,
    Criterion,
    FairBayes,
    Frontier,
    measure,
    proba_to_logits,
    sweep,
)
from fairdial.core.criteria import CRITERIA, DEMOGRAPHIC_PARITY
from fairdial.core.sweep import measure_counts
from fairdial.datasets import Dataset, load_adult

CONFIDENCE = 0.95
CASES = ((500, (0.10, 0.20)), (5_000, (0.10,)))  # eligible rows per group, tolerances
SETTINGS, FAMILY_TOLERANCE = 20, 0.10
SIMPLE = [kind for kind in CRITERIA if kind.is_simple]
SEEDS = (0, 5, 10, 15, 20)  # the paper's
ADULT_TOLERANCES = (0.05, 0.10)
PACKAGES = ("fairdial", "numpy", "scikit-learn", "fairlearn", "oxonfair")


# ---- the law --------------------------------------------------------------------------------


def draw_eligible(criterion: Criterion, eligible: int, rng: np.random.Generator) -> Rows:
    """Draw exactly ``eligible`` eligible rows per group, and the others in proportion."""
    label = criterion.rate.eligible
    groups, labels = [], []
    for a, positive in enumerate(TWO_GROUPS.base_rates):
        if label is None:
            y = (rng.random(eligible) < positive).astype(np.int8)
        else:
            share = positive if label == 1 else 1.0 - positive
            others = round(eligible * (1.0 - share) / share)
            y = np.repeat(np.array([label, 1 - label], np.int8), [eligible, others])
        labels.append(y)
        groups.append(np.full(len(y), a, np.int8))
    codes, y = np.concatenate(groups), np.concatenate(labels)
    return Rows(log_odds(TWO_GROUPS, codes, y, rng), codes, y)


@dataclass
class Rule:
    """A rule's name, how it chooses, and the population values of its choices."""

    name: str
    choose: Callable[[Rows, Frontier, float], tuple[Floats, Floats]]
    gaps: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)
    refused: int = 0

    def add(self, criterion: Criterion, rows: Rows, frontier: Frontier, tolerance: float) -> None:
        """Choose on these rows, and evaluate the choice on the law."""
        try:
            weights, thresholds = self.choose(rows, frontier, tolerance)  # (m, K) each
        except CannotCertifyError:
            self.refused += 1
            return
        rates = (weights * TWO_GROUPS.rates(criterion, thresholds)).sum(axis=0)
        self.gaps.append(float(criterion.gap(rates)))
        self.accuracies.append(_accuracy(weights, thresholds))

    def cells(self, tolerance: float) -> list[str]:
        """Return how often the gap was exceeded, its Monte Carlo error, mean gap and accuracy."""
        if not self.gaps:
            return [f"refused ({self.refused} of {self.refused})", "-", "-", "-"]
        exceeds = float(np.mean(np.array(self.gaps) > tolerance))
        error = np.sqrt(exceeds * (1.0 - exceeds) / len(self.gaps))
        note = f" ({self.refused} refused)" if self.refused else ""
        return [
            f"{exceeds:.1%}{note}",
            f"{error:.1%}",
            f"{np.mean(self.gaps):.4f}",
            f"{np.mean(self.accuracies):.4f}",
        ]


def _accuracy(weights: Floats, thresholds: Floats) -> float:
    """Return the accuracy of a rule that draws one of m thresholds per group by weight."""
    pi = np.asarray(TWO_GROUPS.base_rates)
    true_positive, false_positive = (
        (weights * TWO_GROUPS.rates(name, thresholds)).sum(axis=0)
        for name in ("equal_opportunity", "predictive_equality")
    )
    correct = pi * true_positive + (1.0 - pi) * (1.0 - false_positive)
    return float(correct @ np.asarray(TWO_GROUPS.shares))


def _one(thresholds: Floats) -> tuple[Floats, Floats]:
    """Return a deterministic rule."""
    return np.ones((1, len(thresholds))), thresholds[None, :]


def _plain(_rows: Rows, frontier: Frontier, tolerance: float) -> tuple[Floats, Floats]:
    return _one(frontier.at(tolerance).thresholds)


def _declared(_rows: Rows, frontier: Frontier, tolerance: float) -> tuple[Floats, Floats]:
    return _one(frontier.at(tolerance, confidence=CONFIDENCE).thresholds)


def _simultaneous(_rows: Rows, frontier: Frontier, tolerance: float) -> tuple[Floats, Floats]:
    return _one(frontier.at(tolerance, confidence=CONFIDENCE, simultaneous=True).thresholds)


def _fairlearn(rows: Rows, _frontier: Frontier, tolerance: float) -> tuple[Floats, Floats]:
    return Fairlearn.mixture(Fairlearn(rows).fit(tolerance))


def _oxonfair(rows: Rows, _frontier: Frontier, tolerance: float) -> tuple[Floats, Floats]:
    return _one(OxonFair.thresholds(OxonFair(rows).fit(tolerance)))


def rules(criterion: Criterion) -> list[Rule]:
    """Return the rules for this criterion; the libraries run for demographic parity only."""
    found = [
        Rule("fairdial, plain", _plain),
        Rule(f"fairdial, confidence {CONFIDENCE:g}", _declared),
        Rule(f"fairdial, confidence {CONFIDENCE:g}, simultaneous", _simultaneous),
    ]
    if criterion is DEMOGRAPHIC_PARITY:
        if Fairlearn.installed():
            found.append(Rule("fairlearn", _fairlearn))
        if OxonFair.installed():
            found.append(Rule("oxonfair", _oxonfair))
    return found


def law_lines(criterion: Criterion, draws: int, seed: int) -> Iterator[list[str]]:
    """Yield the rows of the first table for one criterion."""
    for eligible, tolerances in CASES:
        rng = np.random.default_rng([seed, eligible])
        tried = {tolerance: rules(criterion) for tolerance in tolerances}
        for _ in range(draws):
            rows = draw_eligible(criterion, eligible, rng)
            frontier = sweep(rows.logits, rows.groups, rows.y, criterion=criterion)
            for tolerance, each in tried.items():
                for rule in each:
                    rule.add(criterion, rows, frontier, tolerance)
        for tolerance, each in tried.items():
            start = [criterion.name, f"{eligible:,}", f"{tolerance:.2f}"]
            yield from ([*start, rule.name, *rule.cells(tolerance)] for rule in each)
            if criterion is DEMOGRAPHIC_PARITY:
                for peer in (Fairlearn, OxonFair):
                    if not peer.installed():
                        yield [*start, peer.name, MISSING, "-", "-", "-"]


# ---- families of settings -------------------------------------------------------------------


def draw_graded(eligible: int, rng: np.random.Generator) -> tuple[Frontier, Floats]:
    """Draw settings from the fairest to the unconstrained rule, with their population gaps."""
    largest = abs(TWO_GROUPS.disparity(DEMOGRAPHIC_PARITY, 0.0))
    gaps = np.linspace(0.0, largest, SETTINGS)
    limits = np.stack([TWO_GROUPS.at(DEMOGRAPHIC_PARITY, gap).thresholds for gap in gaps.tolist()])
    rows = draw_eligible(DEMOGRAPHIC_PARITY, eligible, rng)
    return measure(rows.logits - limits[:, rows.groups], rows.groups, rows.y), gaps


def draw_alike(eligible: int, rng: np.random.Generator) -> tuple[Frontier, Floats]:
    """Draw settings that decide independently, all slightly above the tolerance."""
    gaps = np.full(SETTINGS, FAMILY_TOLERANCE + 1e-6)
    rows = np.full((1, 2), eligible)
    selected = rng.binomial(rows, 0.5 + np.outer(gaps, [-0.5, 0.5])[:, None, :])
    settings = np.arange(float(SETTINGS))
    frontier = measure_counts(settings, selected, rows, DEMOGRAPHIC_PARITY, (0, 1), min_count=1)
    return frontier, gaps


def family_lines(draws: int, seed: int) -> Iterator[list[str]]:
    """Yield the rows of the second table: how often a gap above the tolerance is accepted."""
    for name, make in (("graded", draw_graded), ("all just above", draw_alike)):
        for eligible, _ in CASES:
            rng = np.random.default_rng([seed, eligible])
            wrong, refused = np.zeros(2), 0
            for _ in range(draws):
                frontier, gaps = make(eligible, rng)
                within = bool((frontier.gap <= FAMILY_TOLERANCE).any())
                above = gaps > FAMILY_TOLERANCE
                wrong[0] += within and above[int(frontier.at(FAMILY_TOLERANCE).setting)]
                try:
                    sure = frontier.at(FAMILY_TOLERANCE, confidence=CONFIDENCE)
                except CannotCertifyError:
                    refused += 1
                else:
                    wrong[1] += above[int(sure.setting)]
            plain, confident = wrong / draws
            start = [name, f"{eligible:,}", f"{FAMILY_TOLERANCE:.2f}"]
            yield [*start, f"{plain:.1%}", f"{confident:.1%}", f"{refused / draws:.1%}"]


# ---- Adult ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """Accuracy and gap on test rows."""

    accuracy: float
    gap: float


def judge(test: Dataset, logits: Floats, codes: Integers, thresholds: Floats) -> Outcome:
    """Return the outcome of these thresholds on test rows."""
    selected = logits > thresholds[codes]
    rates = [selected[codes == a].mean() for a in range(len(thresholds))]
    return Outcome(float((selected == test.y).mean()), float(max(rates) - min(rates)))


def adult_runs(seeds: Sequence[int]) -> dict[float, list[tuple[Outcome, Outcome]]]:
    """Return the outcomes without and with confidence, by tolerance and seed."""
    data = load_adult()
    runs: dict[float, list[tuple[Outcome, Outcome]]] = {each: [] for each in ADULT_TOLERANCES}
    for seed in seeds:
        parts = data.paper_split(seed)
        model = HistGradientBoostingClassifier(random_state=seed)
        model.fit(parts.train.X, parts.train.y)
        dial = FairBayes(model, prefit=True)
        held = parts.calibration
        dial.fit(held.X, held.y, sensitive_features=held.groups)
        frontier, test = dial.frontier_, parts.test
        logits = proba_to_logits(model.predict_proba(test.X)[:, 1])
        codes = np.searchsorted(np.array(frontier.groups), test.groups)
        for tolerance, outcomes in runs.items():
            plain = frontier.at(tolerance).thresholds
            sure = frontier.at(tolerance, confidence=CONFIDENCE).thresholds
            outcomes.append((judge(test, logits, codes, plain), judge(test, logits, codes, sure)))
    return runs


def adult_lines(seeds: Sequence[int]) -> Iterator[list[str]]:
    """Yield the rows of the third table."""
    for tolerance, outcomes in adult_runs(seeds).items():
        accuracy = np.array([[each.accuracy for each in pair] for pair in outcomes])
        gap = np.array([[each.gap for each in pair] for pair in outcomes])  # (seeds, 2)
        cost = accuracy[:, 0] - accuracy[:, 1]
        error = cost.std(ddof=1) / np.sqrt(len(cost)) if len(cost) > 1 else np.nan
        above = (gap > tolerance).sum(axis=0)
        yield [
            f"{tolerance:.2f}",
            *(f"{value:.4f}" for value in accuracy.mean(axis=0)),
            f"{cost.mean():.4f}",
            f"{error:.4f}",
            *(
                f"{value:.4f} ({count} of {len(cost)} above)"
                for value, count in zip(gap.mean(axis=0), above, strict=True)
            ),
        ]


# ---- the run --------------------------------------------------------------------------------


def report(
    shown: Report, draws: int, seeds: Sequence[int], seed: int, criteria: Sequence[Any]
) -> None:
    """Measure two groups and families of models, and print the results."""
    head = ["criterion", "eligible rows per group", "tolerance", "rule", "exceeds", "s.e."]
    shown.show(
        f"Population gap and tolerance, {draws:,} draws of calibration rows; gaps and accuracies "
        "are exact, the standard error is over draws.",
        [*head, "mean gap", "mean accuracy"],
        (line for kind in criteria for line in law_lines(kind, draws, seed)),
    )
    shown.show(
        f"Model families of {SETTINGS} settings: share of draws in which a setting with a "
        "population gap above the tolerance is accepted, without and with confidence "
        f"{CONFIDENCE:g}.",
        ["family", "eligible rows per group", "tolerance", "plain", "confident", "refused"],
        family_lines(draws, seed),
    )
    head = ["tolerance", "accuracy, plain", "accuracy, confident", "cost", "s.e. of cost"]
    shown.show(
        "Adult, groups by sex, gradient boosting and FairBayes, demographic parity, test rows "
        f"of {len(seeds)} splits; confidence {CONFIDENCE:g}.",
        [*head, "gap, plain", "gap, confident"],
        adult_lines(seeds),
    )


def report_groups(shown: Report, draws: int, seed: int, *, quick: bool) -> None:
    """Measure certificates for any number of groups and all criteria, and print the results."""
    columns = ["certified", "certified and wrong", "mean population gap", "theorem"]
    shown.show(
        f"Any number of groups and all criteria, {draws:,} draws, confidence 0.95.",
        ["law", "criterion", "tolerance", *columns],
        group_laws.law_lines(draws, seed, 6 if quick else 1),
    )
    shown.show(
        f"Five groups of 157, 236, 95, 3,353 and 162 rows, demographic parity, {draws:,} draws.",
        ["rules found on", "tolerance", *columns],
        group_laws.five_lines(draws, seed, (0.20,) if quick else (0.08, 0.10, 0.15, 0.20)),
    )
    if not quick:
        report_error(shown)
    shown.show(
        "Two groups at rates near 0.2: what a tolerance of 0.1 must exceed the gap on the rows by.",
        ["rows per group", "pair test", "any rates"],
        group_laws.margin_lines(),
    )
    shown.show(
        "Ten groups of 5,000 rows: processor time of a certified tolerance, "
        "the least of five frontiers.",
        ["call", "time"],
        group_laws.timing_lines(seed, 1 if quick else 5),
    )


def report_law(shown: Report, draws: int, seed: int, name: str) -> None:
    """Measure certificates on the laws of one name, and print the results."""
    columns = ["certified", "certified and wrong", "mean population gap", "theorem"]
    shown.show(
        f"{draws:,} draws, confidence 0.95.",
        ["law", "criterion", "tolerance", *columns],
        group_laws.law_lines(draws, seed, name=name),
    )


def report_error(shown: Report) -> None:
    """Compute the error of theorem 1 without drawing, and print it."""
    shown.show(
        "Two groups, without drawing: probability that a rule whose gap is the tolerance passes, "
        "and a bound for a change of sign.",
        ["law", "criterion", "tolerance", "passes", "change of sign"],
        group_laws.error_lines(),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the options and run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draws", type=int, default=1000, help="draws of calibration rows")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=("groups", "error"), help="print only these tables")
    parser.add_argument(
        "--law", metavar="NAME", help="print only certificates on laws of this name"
    )
    parser.add_argument("--record", type=Path, metavar="FILE", help="store the tables as JSON")
    parser.add_argument("--quick", action="store_true", help="few draws, to check that it works")
    given = parser.parse_args(arguments)
    quiet()
    shown = Report()
    print(machine(PACKAGES))
    with threadpool_limits(1):
        if given.quick:
            print("A quick run checks that the script works; its numbers mean nothing.\n")
        draws, seeds = (1, SEEDS[:1]) if given.quick else (given.draws, SEEDS)
        if given.only is None and given.law is None:
            report(shown, draws, seeds, given.seed, SIMPLE)
        if given.law is not None:
            report_law(shown, draws, given.seed, given.law)
        elif given.only == "error":
            report_error(shown)
        else:
            report_groups(shown, draws, given.seed, quick=given.quick)
    if given.record is not None:
        shown.write(given.record, PACKAGES)


if __name__ == "__main__":
    main()
