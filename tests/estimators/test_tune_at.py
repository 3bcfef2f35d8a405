"""AutoDial with other settings of trees, compared at one tolerance."""

from __future__ import annotations

import re
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fairdial
from fairdial import AutoDial, FairdialWarning, InvalidInputError
from fairdial.datasets import load_compas
from fairdial.estimators.candidates import VARIANTS, add_variants, installed_libraries
from fairdial.registry import candidates

DATA = load_compas().split(random_state=0)[0].split(test_size=0.4, random_state=1)[1]


def fit(**given: Any) -> AutoDial:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairdialWarning)
        model = AutoDial(candidates=["boosting", "logistic"], random_state=0, **given)
        return model.fit(DATA.X, DATA.y, sensitive_features=DATA.groups)


def settings_of(model: AutoDial) -> dict[str, Any]:
    return dict(model.model_.estimator[-1].get_params())


def test_all_settings_are_compared_at_the_tolerance(tmp_path: Path) -> None:
    model = fit(tune_at=0.05)
    assert list(model.trials_.index) == ["boosting", *VARIANTS, "logistic"]
    assert model.trials_["accuracy"].notna().all()
    (rows,) = re.findall(r"on (\d+) validation rows", model.why_)
    correct = model.trials_["accuracy"] * int(rows)  # whole rows: one tolerance
    assert np.allclose(correct, correct.round(), atol=1e-6)
    assert "0.05" in model.why_
    close = model.trials_["difference"] >= -model.trials_["error"]
    assert close[model.chosen_]
    for name, value in VARIANTS.get(model.chosen_, {}).items():
        assert settings_of(model)[name] == value
    model.save(tmp_path / "model")
    again = fairdial.load(tmp_path / "model")
    assert again.training_["chosen"] == model.chosen_
    groups = DATA.groups
    assert np.array_equal(
        again.predict(DATA.X, sensitive_features=groups, tolerance=0.05),
        model.predict(DATA.X, sensitive_features=groups, tolerance=0.05),
    )


def test_time_is_kept_and_the_default_comes_first() -> None:
    start = time.perf_counter()
    model = fit(tune_at=0.05, time_limit=1e-3)
    assert model.chosen_ == "boosting"
    tried = model.trials_.index[model.trials_["accuracy"].notna()].tolist()
    assert tried == ["boosting"]
    assert time.perf_counter() - start < 60


def test_every_setting_is_one_of_boosting() -> None:
    assert all(name.partition(" (")[0] == "boosting" for name in VARIANTS)
    assert add_variants(["logistic"]) == ["logistic"]
    assert set(installed_libraries()) <= set(candidates())


@pytest.mark.parametrize("value", [0.0, 1.0, -0.1, "0.05"])
def test_other_tolerances_are_refused(value: Any) -> None:
    with pytest.raises(InvalidInputError) as caught:
        fit(tune_at=value)
    assert caught.value.argument == "tune_at"
