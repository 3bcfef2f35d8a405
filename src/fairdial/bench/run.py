"""Run what is missing of a plan: processes on one machine, dask or ray across machines."""

from __future__ import annotations

import contextlib
import importlib
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from joblib import Parallel, cpu_count, delayed, parallel_config

from fairdial._validation import check_choice
from fairdial.bench.plan import Plan
from fairdial.bench.sources import SOURCES, check_sources
from fairdial.bench.store import Store
from fairdial.bench.trial import run_trial
from fairdial.errors import InvalidInputError, MissingExtraError, need_extra, say_install
from fairdial.progress import Reporter, Silent

WATCH = 1.0  # seconds between looks for the driver
BACKENDS = ("loky", "dask", "ray")
WEIGHTS = {"FairBiNN": 3, "EPO": 2}  # about how long a trial takes beside others: longest first


@dataclass(frozen=True)
class Status:
    """How much of a plan is done."""

    total: int
    done: int
    failed: int

    @property
    def missing(self) -> int:
        """Trials that a run would do."""
        return self.total - self.done


def status(plan: Plan, store: Store) -> Status:
    """How much of a plan is done, by this version of the code."""
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
    """Run the trials that have no record yet; every one is kept as soon as it is done.

    Parameters
    ----------
    plan : Plan
        What to run.
    store : Store
        Where records go. What is there already is not run again.
    n_jobs : int, optional
        Trials at once; by default one for each processor, or what the cluster has.
    backend : {"loky", "dask", "ray"}
        Where they run.
    scheduler : str, optional
        Address of the dask scheduler or ray cluster; by default one is started on this machine.
    reporter : Reporter, optional
        Shows progress.
    """
    check_choice(backend, "backend", BACKENDS)
    if scheduler is not None and backend == "loky":
        raise InvalidInputError("`scheduler` must go with the backend dask or ray, got loky.")
    check_sources(plan.datasets)
    if scheduler is None:  # the workers of a cluster have libraries of their own
        check_torch(plan, store)
    for path in store.leftovers():
        path.unlink(missing_ok=True)
    missing = [config for config in plan.trials() if store.find(config) is None]
    missing.sort(key=lambda c: -WEIGHTS.get(c["method"]["estimator"], 1))
    studies = [config for config in missing if config["kind"] == "study"]
    costs = [config for config in missing if config["kind"] == "cost"]
    with reporter or Silent() as shown:
        start, total = time.perf_counter(), len(missing)
        with _backend(backend, scheduler, n_jobs) as jobs:
            for done, record in enumerate(_records(studies, backend, jobs), start=1):
                store.write(record)
                shown.advance(_told(record, done, total, min(jobs, len(studies) - done), start))
        for done, config in enumerate(costs, start=len(studies) + 1):  # one at a time
            record = run_trial(config)
            store.write(record)
            shown.advance(_told(record, done, total, int(done < total), start))
    return status(plan, store)


def check_torch(plan: Plan, store: Store) -> None:
    """Raise where trials that have no record yet need torch, and it isn't installed."""
    own = {method.name for method in plan.methods if method.needs_torch}
    networks = dict.fromkeys(
        config["method"]["name"]
        for config in plan.trials()
        if (config["method"]["name"] in own or SOURCES[config["dataset"]].pictures)
        and store.find(config) is None
    )
    if networks:
        need_extra("torch", f"the plan ({', '.join(networks)})", "torch")


def reasons(plan: Plan, store: Store) -> dict[str, int]:
    """What went wrong, a line each, and in how many trials; what is most frequent first."""
    errors = filter(None, map(store.failure, plan.trials()))
    return dict(Counter(error.splitlines()[0] for error in errors).most_common())


def _records(configs: list[dict[str, Any]], backend: str, jobs: int) -> Iterator[dict[str, Any]]:
    """Records as they come."""
    if backend == "ray":  # its joblib backend gives results only when all are there
        ray = _need("ray", "pip install ray")
        task = ray.remote(num_cpus=1)(run_trial)
        waiting = [task.remote(config) for config in configs]
        while waiting:
            ready, waiting = ray.wait(waiting, num_returns=1)
            yield ray.get(ready[0])
    elif jobs == 1:
        yield from map(run_trial, configs)
    elif configs:
        driver = os.getpid() if backend == "loky" else None
        yield from Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)(
            delayed(_watched_trial)(config, driver) for config in configs
        )


def _watched_trial(config: dict[str, Any], driver: int | None) -> dict[str, Any]:
    """A trial in a process of this machine, which ends when its driver has been killed."""
    if driver is not None and driver == os.getppid():
        ended = threading.Event()
        threading.Thread(target=_end_with, args=(driver, ended), daemon=True).start()
        try:
            return run_trial(config)
        finally:
            ended.set()
    return run_trial(config)


def _end_with(driver: int, ended: threading.Event) -> None:
    while not ended.wait(WATCH):
        if os.getppid() != driver:
            os._exit(1)


@contextlib.contextmanager
def _backend(name: str, scheduler: str | None, n_jobs: int | None) -> Iterator[int]:
    """Make joblib run there; gives the number of trials at once."""
    if name == "loky":
        with parallel_config("loky", inner_max_num_threads=1):
            yield n_jobs or cpu_count()
    elif name == "dask":
        distributed = _need("distributed", say_install("dist"))
        with (
            distributed.Client(scheduler)
            if scheduler
            else distributed.Client(
                n_workers=n_jobs or cpu_count(), threads_per_worker=1, dashboard_address=None
            ) as client,
            parallel_config("dask", wait_for_workers_timeout=60),
        ):
            threads = client.nthreads().values()
            if any(count > 1 for count in threads):  # torch's generator belongs to a process
                raise InvalidInputError(
                    "`scheduler` must have workers of one thread each, got "
                    f"{max(threads)}; start them with --nthreads 1 and more --nworkers."
                )
            yield max(n_jobs or len(threads), 2)
    else:
        ray = _need("ray", "pip install ray")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        ray.init(address=scheduler, num_cpus=None if scheduler else n_jobs, log_to_driver=False)
        try:
            yield int(ray.cluster_resources().get("CPU", 1))
        finally:
            ray.shutdown()


def _need(name: str, install: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        raise MissingExtraError(f"this backend needs {name.split('.')[0]}: {install}.") from None


def _told(
    record: dict[str, Any], done: int, total: int, running: int, start: float
) -> dict[str, Any]:
    config = record["config"]
    kind = "cost of " if config["kind"] == "cost" else ""
    words = (kind + config["dataset"], config["criterion"], config["method"]["name"])
    return {
        "trial": f"{', '.join(words)}, seed {config['seed']}"
        + (" failed" if "error" in record else ""),
        "done": done,
        "total": total,
        "running": running,
        "seconds": time.perf_counter() - start,
    }
