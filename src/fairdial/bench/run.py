"""Run the missing trials of a plan: in processes of this machine, or on a dask or ray cluster."""

from __future__ import annotations

import contextlib
import importlib
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from joblib import Parallel, cpu_count, delayed, parallel_config
from threadpoolctl import threadpool_limits

from fairdial._validation import check_choice
from fairdial.bench.estimators import ESTIMATORS
from fairdial.bench.model import TARTE
from fairdial.bench.plan import Plan
from fairdial.bench.sources import check_sources, data_folder
from fairdial.bench.store import Config, Record, Store, command_line
from fairdial.bench.trial import run_trial
from fairdial.datasets.registry import DATASETS
from fairdial.errors import InvalidInputError, MissingExtraError, install_command, require_extra
from fairdial.paper.family import SettingsClassifier
from fairdial.paper.tarte.files import find_files
from fairdial.progress import Reporter, Silent
from fairdial.registry import load_plugins, plugins

WATCH = 1.0  # seconds between checks that the driver is alive
BACKENDS = ("loky", "dask", "ray")


@dataclass(frozen=True)
class Status:
    """How much of a plan is done."""

    total: int
    done: int
    failed: int

    @property
    def missing(self) -> int:
        """The number of trials that a run would do."""
        return self.total - self.done


def status(plan: Plan, store: Store) -> Status:
    """Return how much of a plan this version of the code has done."""
    trials = plan.trials()
    done = sum(store.find(config) is not None for config in trials)
    failed = sum(store.failure(config) is not None for config in trials)
    return Status(len(trials), done, failed)


def run(
    plan: Plan,
    store: Store,
    *,
    n_jobs: int | None = None,
    backend: str = "loky",
    scheduler: str | None = None,
    reporter: Reporter | None = None,
) -> Status:
    """Run the trials that have no record yet, and store each record as soon as it is there.

    Parameters
    ----------
    plan : Plan
        What to run.
    store : Store
        Where records go; trials with a record are not run again.
    n_jobs : int, optional
        Trials at once; by default one per processor, or what the cluster has.
    backend : {"loky", "dask", "ray"}
        Where trials run.
    scheduler : str, optional
        Address of the dask scheduler or ray cluster; by default one is started on this machine.
    reporter : Reporter, optional
        Shows progress.
    """
    check_choice(backend, "backend", BACKENDS)
    if scheduler is not None and backend == "loky":
        raise InvalidInputError("scheduler", "go with the `backend` dask or ray", given="loky")
    check_sources(plan.datasets, plan.size)
    if any(method.encoder == TARTE for method in plan.methods):
        find_files(data_folder())
    if scheduler is None:  # the workers of a cluster have their own libraries
        check_torch(plan, store)
    store.remove_leftovers()
    missing = [config for config in plan.trials() if store.find(config) is None]
    missing.sort(key=_trains_once)  # the longest first
    studies = [config for config in missing if config["kind"] == "study"]
    costs = [config for config in missing if config["kind"] == "cost"]
    command = command_line()
    with reporter or Silent() as shown:
        start, total, done = time.perf_counter(), len(missing), 0

        def keep(record: Record, running: int) -> None:
            record["command"] = command
            store.write(record)
            shown.advance(_progress(record, done, total, running, start))

        with _backend(backend, scheduler, n_jobs) as jobs:
            for done, record in enumerate(run_trials(studies, backend, jobs), start=1):
                keep(record, min(jobs, len(studies) - done))
        for done, config in enumerate(costs, start=len(studies) + 1):  # one at a time
            keep(run_with_one_thread(config), int(done < total))
    return status(plan, store)


def _trains_once(config: Config) -> bool:
    """Return whether one training serves all tolerances; other trials take several times longer."""
    return not issubclass(ESTIMATORS[config["method"]["estimator"]], SettingsClassifier)


def check_torch(plan: Plan, store: Store) -> None:
    """Raise if a trial without a record needs torch and torch isn't installed."""
    networks = {method.name for method in plan.methods if method.needs_torch}
    missing = dict.fromkeys(
        config["method"]["name"]
        for config in plan.trials()
        if (config["method"]["name"] in networks or DATASETS[config["dataset"]].pictures)
        and store.find(config) is None
    )
    if missing:
        require_extra("torch", f"the plan ({', '.join(missing)})", "torch")


def reasons(plan: Plan, store: Store) -> dict[str, int]:
    """Return the errors of failed trials and how often each occurred, the most frequent first."""
    errors = filter(None, map(store.failure, plan.trials()))
    return dict(Counter(error.splitlines()[0] for error in errors).most_common())


def run_trials(configs: list[Config], backend: str, jobs: int) -> Iterator[Record]:
    """Run trials and yield their records as they come."""
    if backend == "ray":  # its joblib backend returns results only when all are there
        ray = _require("ray", "pip install ray")
        task = ray.remote(num_cpus=1)(run_in_worker)
        waiting = [task.remote(config, plugins()) for config in configs]
        while waiting:
            ready, waiting = ray.wait(waiting, num_returns=1)
            yield ray.get(ready[0])
    elif jobs == 1:
        yield from map(run_with_one_thread, configs)
    elif configs:
        driver = os.getpid() if backend == "loky" else None
        yield from Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)(
            delayed(run_in_worker)(config, plugins(), driver) for config in configs
        )


def run_with_one_thread(config: Config) -> Record:
    """Run a trial with one thread for linear algebra, as all processes do: sums depend on it."""
    with threadpool_limits(1):
        return run_trial(config)


def run_in_worker(config: Config, modules: dict[str, str], driver: int | None = None) -> Record:
    """Run a trial in a worker process, with the driver's plugins; it ends when that is killed."""
    load_plugins(modules)
    if driver is None or driver != os.getppid():
        return run_with_one_thread(config)
    ended = threading.Event()
    threading.Thread(target=_end_with, args=(driver, ended), daemon=True).start()
    try:
        return run_with_one_thread(config)
    finally:
        ended.set()


def _end_with(driver: int, ended: threading.Event) -> None:
    while not ended.wait(WATCH):
        if os.getppid() != driver:
            os._exit(1)


@contextlib.contextmanager
def _backend(name: str, scheduler: str | None, n_jobs: int | None) -> Iterator[int]:
    """Set up a backend, and yield the number of trials at once."""
    if name == "loky":
        with parallel_config("loky", inner_max_num_threads=1):
            yield n_jobs or cpu_count()
    elif name == "dask":
        distributed = _require("distributed", install_command("dist"))
        with (
            distributed.Client(scheduler)
            if scheduler
            else distributed.Client(
                n_workers=n_jobs or cpu_count(), threads_per_worker=1, dashboard_address=None
            ) as client,
            parallel_config("dask", wait_for_workers_timeout=60),
        ):
            threads = client.nthreads().values()
            if any(count > 1 for count in threads):  # torch's random generator is per process
                raise InvalidInputError(
                    "scheduler",
                    "have workers with one thread each",
                    given=max(threads),
                    hint="Start them with --nthreads 1 and more --nworkers.",
                )
            yield max(n_jobs or len(threads), 2)
    else:
        ray = _require("ray", "pip install ray")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        ray.init(address=scheduler, num_cpus=None if scheduler else n_jobs, log_to_driver=False)
        try:
            yield int(ray.cluster_resources().get("CPU", 1))
        finally:
            ray.shutdown()


def _require(name: str, install: str) -> ModuleType:
    """Return a third-party module, or raise with the command that installs it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        raise MissingExtraError(f"this backend needs {name}: {install}.") from None


def _progress(record: Record, done: int, total: int, running: int, start: float) -> dict[str, Any]:
    config = record["config"]
    kind = "cost of " if config["kind"] == "cost" else ""
    names = (kind + config["dataset"], config["criterion"], config["method"]["name"])
    failed = " failed" if "error" in record else ""
    return {
        "trial": f"{', '.join(names)}, seed {config['seed']}{failed}",
        "done": done,
        "total": total,
        "running": running,
        "seconds": time.perf_counter() - start,
    }
