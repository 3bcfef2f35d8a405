"""Rerun stored trials with the code of today, and compare how many rows they select."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import parallel_config

from fairdial._arrays import Counts
from fairdial.bench.run import run_trials
from fairdial.bench.store import Config, Record, config_key

CHOSEN = ("points", "curve", "grid", "certified")  # lists of operating points in a record
ROWS = ("calibration", "test")  # in which selected rows are counted
EQUAL = ("data", "groups", "rows", "feasible", "epochs")  # must be the same, where stored


@dataclass(frozen=True)
class Comparison:
    """A stored trial beside its repetition.

    Attributes
    ----------
    config : dict
        The trial.
    commit : str
        The commit that the stored record was made with.
    points : int
        Operating points that were compared.
    differing : int
        How many of them have other counts.
    rows : dict
        By kind of rows that the stored record has counts of: the largest difference of an operating
        point's counts, summed over labels and groups. At least as many decisions differ.
    problem : str
        What else differs, such as the data; then counts aren't compared.
    other_kernels : bool
        Whether the stored record was made with other linear algebra, or doesn't say: then scores
        differ in their last bits, and a few decisions with them.
    """

    config: Config
    commit: str
    points: int
    differing: int
    rows: dict[str, int]
    problem: str = ""
    other_kernels: bool = False

    @property
    def same(self) -> bool:
        """Whether all counts are the same, and all else that is compared."""
        return not self.problem and self.differing == 0

    def __str__(self) -> str:
        method, names = self.config["method"]["name"], [self.config["dataset"]]
        names += [self.config["criterion"], method, f"seed {self.config['seed']}"]
        trial = ", ".join(names)
        if self.same:
            none = "".join(f", no {kind} counts stored" for kind in ROWS if kind not in self.rows)
            return f"same: {trial} ({self.points} operating points{none})"
        where = " (perhaps because of another processor)" if self.other_kernels else ""
        if self.problem:
            return f"differs: {trial}: {self.problem}{where}"
        rows = " and ".join(f"{n} {kind} rows" for kind, n in self.rows.items() if n)
        points = f"{self.differing} of {self.points} operating points"
        return f"differs: {trial}: {points}, by {rows}{where}"


def draw(records: list[Record], size: int | None, seed: int) -> list[Record]:
    """Return a random sample of records, all of them if ``size`` is None; the seed repeats it."""
    ordered = sorted(records, key=lambda record: config_key(record["config"]))
    if size is None or size >= len(ordered):
        return ordered
    return random.Random(seed).sample(ordered, size)


def verify(records: list[Record], *, n_jobs: int = 1) -> Iterator[Comparison]:
    """Run the trials of records again, and yield how each compares, as they end."""
    stored = {config_key(record["config"]): record for record in records}
    configs = [record["config"] for record in records]
    with parallel_config("loky", inner_max_num_threads=1):
        for again in run_trials(configs, "loky", n_jobs):
            yield compare(stored[config_key(again["config"])], again)


def compare(stored: Record, again: Record) -> Comparison:
    """Compare two records of a trial: counts at all operating points, data, rows and epochs.

    Records hold how many rows of each label and group an operating point selects, on test rows, and
    since version 0.4 on calibration rows. They don't say which rows these are.
    """
    commit = stored["environment"].get("commit", "unknown")
    if "error" in again:
        return Comparison(stored["config"], commit, 0, 0, {}, f"it fails: {again['error']}")
    a, b = stored["result"], again["result"]
    problems = [f"other {name}" for name in EQUAL if not _agree(a.get(name), b.get(name))]
    problems += [
        f"{len(a[chosen])} points of `{chosen}`, now {len(b[chosen])}"
        for chosen in CHOSEN
        if len(a[chosen]) != len(b[chosen])
    ]
    kernels = [record["environment"].get("kernels", "unknown") for record in (stored, again)]
    other = kernels[0] == "unknown" or kernels[0] != kernels[1]
    if problems:
        return Comparison(stored["config"], commit, 0, 0, {}, ", ".join(problems), other)
    apart = {
        kind: np.abs(_counts(a, kind) - _counts(b, kind)).sum(axis=1)  # (n,)
        for kind in ROWS
        if kind in a["states"]
    }
    differing = np.any([n > 0 for n in apart.values()], axis=0)  # (n,)
    most = {kind: int(n.max(initial=0)) for kind, n in apart.items()}
    return Comparison(
        stored["config"],
        commit,
        len(differing),
        int(differing.sum()),
        most,
        other_kernels=other,
    )


def _agree(stored: Any, again: Any) -> bool:
    """Return whether values are equal; tables only where the stored one has entries."""
    if isinstance(stored, dict) and isinstance(again, dict):
        return all(_agree(value, again.get(name)) for name, value in stored.items())
    return stored is None or bool(stored == again)


def _counts(result: dict[str, Any], kind: str) -> Counts:
    """Return what all chosen operating points select, by label and group: (n, labels * groups)."""
    states = result["states"]
    place = {state: i for i, state in enumerate(states["state"])}
    columns = np.array(states[kind])  # (labels, groups, states)
    flat = columns.reshape(-1, columns.shape[-1]).T
    nothing = np.full(flat.shape[1], -1)  # where no point could be certified
    found = [
        nothing if state is None else flat[place[state]]
        for chosen in CHOSEN
        for state in result[chosen]
    ]
    return np.array(found)
