"""Search the hyperparameters of all methods alike, on validation rows.

Each method on each data set is a search of its own: optuna's sampler proposes a trial, its splits
run one after the other, and successive halving ends bad trials early. Given the records of the
trials, a search is a pure function of the space: an interrupted one is replayed from its records.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from joblib.externals.loky import get_reusable_executor

from fairdial._version import __version__
from fairdial.bench.curves import read_trial
from fairdial.bench.plan import Chosen
from fairdial.bench.run import run_in_worker, run_with_one_thread
from fairdial.bench.sources import check_sources
from fairdial.bench.space import Parameter, Searched, Space, Values
from fairdial.bench.store import Config, Record, Store, command_line, environment, replace_file
from fairdial.bench.tuned import as_json, read_tuned, write_tuned
from fairdial.errors import InvalidInputError, require_extra, require_torch
from fairdial.metrics import hypervolume
from fairdial.paper.presets import TUNED, read_chosen, tuned_key
from fairdial.progress import Reporter, Silent
from fairdial.registry import plugins

REFERENCE = (0.0, 1.0)  # accuracy and gap: the paper's measure of selection
AT_RANDOM = 6  # trials before the sampler learns from the others, the preset among them
CHOSEN, CHOICES, TRIALS = "chosen.json", "choices", "trials"
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")  # of workers: one each


def value_of(record: Record) -> float:
    """Return the hypervolume of a method's own operating points on the rows of evaluation."""
    return hypervolume(read_trial(record).points, REFERENCE)


# ---- one search --------------------------------------------------------------------------------


@dataclass
class Attempt:
    """One trial of a search.

    Attributes
    ----------
    number : int
        Its place; 0 is the preset.
    values : dict
        The ``arguments`` and ``network`` arguments that it sets.
    hypervolumes : list of float
        Of each split that was run.
    state : {"complete", "pruned", "failed"}
        Whether all splits were run.
    seconds : float
        Processor seconds.
    error : str
        Why it failed.
    """

    number: int
    values: Values
    hypervolumes: list[float] = field(default_factory=list)
    state: str = "complete"
    seconds: float = 0.0
    error: str = ""

    @property
    def value(self) -> float:
        """The mean over the splits."""
        return float(np.mean(self.hypervolumes))


@dataclass
class Search:
    """The search of one method on one data set, and what it found so far."""

    space: Space
    dataset: str
    searched: Searched
    attempts: list[Attempt] = field(default_factory=list)

    def run(self) -> Generator[Config, Record, None]:
        """Yield the trials of splits one by one; each record must be sent back."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        study = optuna.create_study(
            direction="maximize",
            sampler=optuna.samplers.TPESampler(seed=self.space.seed, n_startup_trials=AT_RANDOM),
            pruner=optuna.pruners.SuccessiveHalvingPruner(
                min_resource=1, reduction_factor=self.space.reduction
            ),
        )
        study.enqueue_trial(self.space.preset(self.dataset, self.searched))
        states = optuna.trial.TrialState
        parameters = self.searched.parameters(self.dataset)
        for _ in range(self.space.trials):
            trial = study.ask()
            attempt = yield from self._attempt(trial, parameters)
            if attempt.state == "complete":
                study.tell(trial, attempt.value)
            else:
                failed = attempt.state == "failed"
                study.tell(trial, state=states.FAIL if failed else states.PRUNED)
            self.attempts.append(attempt)

    def _attempt(
        self, trial: Any, parameters: list[Parameter]
    ) -> Generator[Config, Record, Attempt]:
        chosen: dict[str, Any] = {}
        for parameter in parameters:
            chosen |= parameter.changes(parameter.suggest(trial))
        attempt = Attempt(trial.number, self.searched.values(chosen))
        seeds = self.space.seeds[self.dataset]
        for step, seed in enumerate(seeds, start=1):
            record = yield self.space.config(self.dataset, self.searched, chosen, seed)
            if "error" in record:
                attempt.state, attempt.error = "failed", record["error"]
                break
            timing = record.get("timing", {})
            attempt.seconds += sum(v for k, v in timing.items() if k.endswith("_cpu"))
            attempt.hypervolumes.append(value_of(record))
            trial.report(attempt.value, step)
            if step < len(seeds) and trial.should_prune():
                attempt.state = "pruned"
                break
        return attempt

    @property
    def key(self) -> tuple[str, str]:
        """The names of data set and method in the stored choices."""
        method = self.searched.method
        dataset = tuned_key(self.dataset, features=method.trained == "none")
        return dataset, method.estimator.lower()

    @property
    def best(self) -> Attempt | None:
        """The best of the trials that ran all splits; the first of equal ones."""
        whole = [attempt for attempt in self.attempts if attempt.state == "complete"]
        return max(whole, key=lambda attempt: attempt.value, default=None)

    def chosen(self) -> dict[str, Any] | None:
        """Return the choice and where it comes from; None if no trial ran all splits.

        The choice has the searched parameters and the fixed arguments of the method, but not the
        fixed ones of its network, which only serve the search.
        """
        best, preset = self.best, self.attempts[0]
        if best is None:
            return None
        fixed = self.searched.fixed_network(self.dataset)
        network = {k: v for k, v in best.values["network"].items() if k not in fixed}
        made = environment()
        states = [attempt.state for attempt in self.attempts]
        return {
            "arguments": best.values["arguments"],
            "network": network,
            "trial": best.number,
            "value": best.value,
            "preset": preset.value if preset.state == "complete" else None,
            "trials": len(self.attempts),
            "pruned": states.count("pruned"),
            "failed": states.count("failed"),
            "seconds": round(sum(attempt.seconds for attempt in self.attempts), 1),
            "tuning": {
                "title": self.space.title,
                "criterion": self.space.criterion,
                "seeds": list(self.space.seeds[self.dataset]),
                "settings": self.space.settings,
                "network": fixed,
                "reduction": self.space.reduction,
                "sampler_seed": self.space.seed,
                "optuna": version("optuna"),
                "rows": self.space.rows,
                "command": command_line(),
                "version": __version__,
                "commit": made["commit"],
                "dirty": made["dirty"],
            },
        }


# ---- all searches ------------------------------------------------------------------------------


def check_ready(space: Space) -> None:
    """Raise if a library or a data set is missing."""
    require_extra("optuna", "tuning", "bench")
    require_torch()
    check_sources(space.datasets)


def tune(
    space: Space, store: Store, *, n_jobs: int = 1, reporter: Reporter | None = None
) -> list[Search]:
    """Search all methods on all data sets; trials with a record aren't run again.

    Parameters
    ----------
    space : Space
        What to search.
    store : Store
        Where records go.
    n_jobs : int
        Searches at once. Within a search, trials follow each other, so that the result doesn't
        depend on timing. Searches take turns: all have made about as many trials at any time.
    reporter : Reporter, optional
        Shows progress.
    """
    check_ready(space)
    store.remove_leftovers()
    searches = [
        Search(space, dataset, searched) for dataset in space.datasets for searched in space.methods
    ]
    with reporter or Silent() as shown, _Workers(min(n_jobs, len(searches))) as workers:
        _Turns(searches, store, workers, shown).run()
    return searches


class _Turns:
    """Runs searches side by side, at most one split of each at a time."""

    def __init__(
        self, searches: list[Search], store: Store, workers: _Workers, shown: Reporter
    ) -> None:
        self._searches, self._store, self._workers, self._shown = searches, store, workers, shown
        self._steps = [search.run() for search in searches]
        self._waiting = deque((i, next(steps)) for i, steps in enumerate(self._steps))
        self._running: dict[Future[Record], int] = {}
        self._start, self._fresh, self._command = time.perf_counter(), 0, command_line()

    def run(self) -> None:
        while self._waiting or self._running:
            while self._waiting and len(self._running) < self._workers.count:
                i, config = self._waiting.popleft()
                record = self._store.find(config)
                if record is None:
                    self._running[self._workers.submit(config)] = i
                else:
                    self._send(i, record, fresh=False)
            for future in wait(self._running, return_when=FIRST_COMPLETED).done:
                i, record = self._running.pop(future), future.result()
                record["command"] = self._command
                self._store.write(record)
                self._send(i, record, fresh=True)

    def _send(self, i: int, record: Record, *, fresh: bool) -> None:
        """Continue a search with a record."""
        search, before = self._searches[i], len(self._searches[i].attempts)
        with contextlib.suppress(StopIteration):
            self._waiting.append((i, self._steps[i].send(record)))
        if len(search.attempts) > before and fresh:
            self._fresh += 1
            self._shown.advance(self._progress(search))

    def _progress(self, search: Search) -> dict[str, Any]:
        done = sum(len(other.attempts) for other in self._searches)
        last = search.attempts[-1]
        found = f"{last.value:.4f}" if last.hypervolumes else "no value"
        names = f"{search.dataset}, {search.searched.method.name}, trial {last.number}"
        return {
            "trial": f"{names}: {found}, {last.state}",
            "done": done,
            "total": len(self._searches) * search.space.trials,
            "running": len(self._running),
            "seconds": (time.perf_counter() - self._start) * done / self._fresh,
        }


class _Workers:
    """Runs trials in other processes, or here if there is just one at a time."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._pool: Executor | None = None

    def __enter__(self) -> _Workers:
        if self.count > 1:
            threads = dict.fromkeys(THREADS, "1")
            self._pool = get_reusable_executor(max_workers=self.count, env=threads)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, kill_workers=kind is not None)  # type: ignore[call-arg]

    def submit(self, config: Config) -> Future[Record]:
        if self._pool is not None:
            return self._pool.submit(run_in_worker, config, plugins(), os.getpid())
        done: Future[Record] = Future()
        done.set_result(run_with_one_thread(config))
        return done


# ---- files -------------------------------------------------------------------------------------


def write_results(searches: Iterable[Search], folder: Path) -> Chosen:
    """Write the trials and the choice of each search, and all choices in one file; return these.

    Choices that the folder already has for other data sets and methods stay.
    """
    for search in searches:
        dataset, method = search.key
        name = f"{dataset}-{method}.json".replace(" ", "-")
        trials = [asdict(attempt) for attempt in search.attempts]
        replace_file(folder / TRIALS / name, as_json(trials))
        write_tuned(folder / CHOICES / name, {dataset: {method: search.chosen()}})
    while True:  # until nothing was added meanwhile: the last of several processes writes all
        found = _stored_choices(folder)
        write_tuned(folder / CHOSEN, found)
        if _stored_choices(folder) == found:
            return found


def _stored_choices(folder: Path) -> Chosen:
    """Return the choices of all searches in a folder."""
    path = folder / CHOSEN
    found = read_tuned(path) if path.is_file() else {}
    for file in sorted((folder / CHOICES).glob("*.json")):
        for dataset, methods in read_tuned(file).items():
            found[dataset] = found.get(dataset, {}) | methods
    return {
        dataset: {method: entry for method, entry in methods.items() if entry is not None}
        for dataset, methods in found.items()
    }


def adopt(folder: Path, to: Path = TUNED) -> Chosen:
    """Make the choices in a folder the presets; return them.

    Presets of other data sets and methods stay.
    """
    if not (folder / CHOSEN).is_file():
        raise InvalidInputError(
            "out", "be the folder of a finished tuning", given=f"{folder} without {CHOSEN}"
        )
    new = read_tuned(folder / CHOSEN)
    for dataset, methods in new.items():
        for method, entry in methods.items():
            if entry["tuning"]["rows"] is not None:
                raise InvalidInputError(
                    "out",
                    "be a tuning with all rows",
                    given=f"{entry['tuning']['rows']} rows of {dataset} for {method}",
                )
        _check_alike(dataset, methods)
    presets = read_tuned(to) if to.is_file() else {}
    for dataset, methods in new.items():
        presets[dataset] = presets.get(dataset, {}) | methods
    write_tuned(to, presets)
    read_chosen.cache_clear()
    return new


def _check_alike(dataset: str, methods: dict[str, dict[str, Any]]) -> None:
    """Refuse methods of a data set that were tuned with other trials or splits than the others."""
    trials = {method: entry["trials"] for method, entry in methods.items()}
    splits = {method: entry["tuning"]["seeds"] for method, entry in methods.items()}
    for what, found in (("trials", trials), ("splits", splits)):
        if any(value != next(iter(found.values())) for value in found.values()):
            raise InvalidInputError(
                "out",
                f"have the same {what} for all methods on {dataset}",
                given=", ".join(f"{method}: {value}" for method, value in found.items()),
                hint="Run `fairdial bench tune` for all methods with the same --trials.",
            )
