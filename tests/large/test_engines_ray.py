"""Datasets of Ray, on a local cluster: the answers of one process."""

from __future__ import annotations

import copy
import logging
import os
import warnings

import pytest

from fairdial.large import calibrate, decide, evaluate

from .conftest import TOLERANCES
from .test_engines import LABEL, check_decisions, check_evaluation, check_frontier

ray = pytest.importorskip("ray")


@pytest.fixture(scope="module", autouse=True)
def _cluster():
    import ray.data

    os.environ |= {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        object_store_memory=200 << 20,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Ray sets its own deprecated options
        context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    yield
    ray.shutdown()


def test_answers_are_those_of_one_process(people, boosted):
    rows = ray.data.from_pandas([people[part::5] for part in range(5)])
    table = rows.union(ray.data.from_pandas(people[:0]))
    found = decide(table, boosted, tolerance=0.05)
    assert isinstance(found, ray.data.Dataset)
    check_decisions(found.to_pandas(), people, boosted, 0.05)
    model = calibrate(table, copy.deepcopy(boosted), **LABEL, tolerances=TOLERANCES)
    check_frontier(model, people, boosted)
    check_evaluation(evaluate(table, boosted, **LABEL, tolerance=0.05), people, boosted, 0.05)
