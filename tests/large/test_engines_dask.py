"""Tables of dask: the answers of one process, also if a worker dies."""

from __future__ import annotations

import copy
import os
import signal

import dask
import dask.dataframe as dd
import pytest
from dask.distributed import Client, LocalCluster

from fairdial.large import calibrate, decide, evaluate

from .conftest import TOLERANCES
from .test_engines import LABEL, check_decisions, check_evaluation, check_frontier


@pytest.fixture(scope="module")
def table(people):
    """Partitions of different sizes, two of them without rows."""
    frame = dd.from_pandas(people, npartitions=7)
    return dd.concat([frame, dd.from_pandas(people[:0], npartitions=1)]).map_partitions(
        lambda part: part[part["id"] // 4000 != 2]
    )


@pytest.fixture(scope="module")
def present(people):
    return people[people["id"] // 4000 != 2].reset_index(drop=True)


def test_answers_are_those_of_one_process(table, present, boosted):
    with dask.config.set(scheduler="threads", num_workers=2):
        found = decide(table, boosted, tolerance=0.05)
        assert isinstance(found, dd.DataFrame)
        computed = found.compute()
        added = ["decision", "margin", "logit"]
        assert (computed[added].dtypes == found[added].dtypes).all()
        check_decisions(computed, present, boosted, 0.05)
        model = calibrate(table, copy.deepcopy(boosted), **LABEL, tolerances=TOLERANCES)
        check_frontier(model, present, boosted)
        check_evaluation(evaluate(table, boosted, **LABEL, tolerance=0.05), present, boosted, 0.05)


def test_a_worker_that_dies_loses_nothing(table, present, boosted, tmp_path):
    died = tmp_path / "died"

    def die_once(part):
        if (part["id"] == 13_000).any() and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return part

    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, processes=True
        ) as cluster,
        Client(cluster),
    ):
        dying = table.map_partitions(die_once, meta=table._meta)
        model = calibrate(dying, copy.deepcopy(boosted), **LABEL, tolerances=TOLERANCES)
        assert died.exists()
        check_frontier(model, present, boosted)
        died.unlink()
        check_decisions(decide(dying, boosted, tolerance=0.05).compute(), present, boosted, 0.05)
        assert died.exists()
