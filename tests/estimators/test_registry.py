"""Methods are registered once; one's own method needs a class and a record."""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

import fairdial
from fairdial import InvalidInputError, ModelFileError, registry
from fairdial.bench.estimators import ESTIMATORS
from fairdial.datasets import make_gaussian
from fairdial.estimators.candidates import check_names, default_names, make_candidate
from fairdial.estimators.families import FamilyClassifier
from fairdial.estimators.rows import take_rows
from fairdial.registry import Method, find, method_of, methods, register

pytestmark = pytest.mark.filterwarnings("ignore::fairdial.FairdialWarning")
# rows are held out one by one: copies of a row may be separated, a row with a weight is not
HELD_OUT = dict.fromkeys(
    [f"check_sample_weight_equivalence_on_{kind}_data" for kind in ("dense", "sparse")],
    "rows are held out one by one",
)
DATA = make_gaussian(3000, random_state=0)


class Shifted:
    """Logistic regression with shifts."""

    def __init__(self, model: LogisticRegression) -> None:
        self.model = model

    def prepare(self, X: Any, groups: Any) -> Any:  # noqa: ARG002
        return self.model.decision_function(X)

    def margins(self, rows: Any, groups: Any, setting: float) -> Any:
        return rows + setting * (groups == 0)


class ShiftFamily(FamilyClassifier):
    """A family without a network: logits of one group are shifted."""

    def __init__(
        self,
        *,
        criterion="demographic_parity",
        tolerance=0.0,
        calibration=0.2,
        pos_label=None,
        sensitive_column=None,
        min_count=30,
        random_state=None,
    ):
        self.criterion = criterion
        self.tolerance = tolerance
        self.calibration = calibration
        self.pos_label = pos_label
        self.sensitive_column = sensitive_column
        self.min_count = min_count
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _fit(self, X: Any, y: Any, sensitive_features: Any, **more: Any) -> Any:
        rows = self._rows_to_fit(X, y, sensitive_features, **more)
        model = LogisticRegression().fit(
            take_rows(rows.X, rows.train),
            rows.y[rows.train],
            sample_weight=rows.weights_of(rows.train),
        )
        self.scorer_ = Shifted(model)
        return self._calibrate_held_out(rows)

    def _settings(self, measure: Any) -> Any:  # noqa: ARG002
        return np.array([0.0, 0.5, 1.0, 2.0]), np.ones(4, bool)


@pytest.fixture
def shift() -> Iterator[Method]:
    method = Method(
        "shift",
        "ShiftFamily",
        lambda: ShiftFamily,
        "Logits of one group are shifted.",
        kind="family",
        types=(Shifted,),
    )
    yield register(method)
    registry._METHODS.pop("shift")


def fitted() -> Any:
    return ShiftFamily(random_state=0).fit(DATA.X, DATA.y, sensitive_features=DATA.groups)


@parametrize_with_checks([ShiftFamily(random_state=0)], expected_failed_checks=lambda _: HELD_OUT)
def test_a_family_without_a_network_passes_scikit_learns_checks(estimator: Any, check: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


@pytest.mark.parametrize("method", methods(), ids=lambda method: method.name)
def test_records_agree_with_their_classes(method: Method) -> None:
    kind = method.load()
    assert kind.__name__ == method.estimator
    assert ESTIMATORS[method.estimator] is kind
    assert method_of(kind).load() is kind
    own = {"epochs": 3, "members": 2, "time_limit": 9.0, "recalibrate": True}
    given = {name: own[name] for name in method.options}
    model = method.make(seed=5, texts=["job"], tolerance=0.1, **given)
    assert isinstance(model, kind)
    assert (model.random_state, model.tolerance) == (5, 0.1)
    network = getattr(model, "network", None) or getattr(model, "estimator", None)
    for name in set(given) & {"epochs", "members"}:
        assert getattr(network, name) == own[name]
    if "recalibrate" in given:
        assert model.recalibrate == "group"
    for name in set(own) - set(method.options):
        with pytest.raises(InvalidInputError) as error:
            method.make(**{name: own[name]})
        assert error.value.argument == name


def test_candidates_are_those_of_the_registry_in_the_order_of_trying() -> None:
    names = list(registry.candidates())
    libraries = ["lightgbm", "xgboost", "catboost"]
    assert names == ["boosting", "logistic", "blend", *libraries, "network", "gfb"]
    assert default_names() == [name for name in names if name not in libraries]
    simple = sorted(default_names(), key=lambda name: registry.candidates()[name].complexity)
    assert simple == ["logistic", "boosting", "blend", "network", "gfb"]
    for name in names:
        assert check_names([name]) == [name]
        made = make_candidate(name, DATA.X, 3, tolerance=0.2)
        assert type(made).__name__ == registry.candidates()[name].estimator


def test_names_of_the_library_stay_its_own(shift: Method) -> None:
    for wrong in (
        Method("gfb", "Mine", lambda: ShiftFamily, "Mine."),
        Method("mine", "GFB", lambda: ShiftFamily, "Mine."),
    ):
        with pytest.raises(InvalidInputError):
            register(wrong)
    assert register(shift) is shift  # again, as in a notebook
    with pytest.raises(InvalidInputError) as error:
        find("shfit")
    assert error.value.argument == "method"


@pytest.mark.usefixtures("shift")
def test_a_registered_method_can_be_saved_loaded_and_named_in_plans(tmp_path: Path) -> None:
    model = fitted()
    model.save(tmp_path / "model")
    again = fairdial.load(tmp_path / "model")
    for tolerance in (0.0, 0.1, 0.4):
        settings = {"sensitive_features": DATA.groups, "tolerance": tolerance}
        assert np.array_equal(again.predict(DATA.X, **settings), model.predict(DATA.X, **settings))
    assert ESTIMATORS["ShiftFamily"] is ShiftFamily
    assert "shift" in registry.names()
    assert "ShiftFamily" in (tmp_path / "model" / "MODEL_CARD.md").read_text()


def test_a_method_that_is_not_registered_is_used_but_neither_saved_nor_loaded(
    tmp_path: Path,
) -> None:
    model = fitted()
    with pytest.raises(InvalidInputError, match="ShiftFamily"):
        model.save(tmp_path / "model")
    method = register(
        Method("shift", "ShiftFamily", lambda: ShiftFamily, "A shift.", types=(Shifted,))
    )
    model.save(tmp_path / "model")
    registry._METHODS.pop(method.name)
    with pytest.raises(ModelFileError, match="ShiftFamily"):
        fairdial.load(tmp_path / "model")
    other = Method("shift", "ShiftFamily", lambda: ShiftFamily, "Without its types.")
    register(other)
    with pytest.raises(ModelFileError, match="Shifted"):
        fairdial.load(tmp_path / "model")
    registry._METHODS.pop(other.name)


PLUGIN = """
    from sklearn.naive_bayes import GaussianNB
    from fairdial import FairBayes
    from fairdial.registry import Method, register

    class NaiveBayes(FairBayes):
        def _parts(self):
            return [GaussianNB()]

    register(Method("naive", "NaiveBayes", lambda: NaiveBayes, "Naive Bayes."))
"""


def test_a_plugin_makes_a_method_known_to_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "naive_method.py").write_text(textwrap.dedent(PLUGIN))
    DATA.X.assign(group=DATA.groups, y=DATA.y).to_csv(tmp_path / "rows.csv", index=False)
    train = ["train", "rows.csv", "--label", "y", "--sensitive", "group", "--out", "model"]

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "fairdial", *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    done = call("--plugin", "naive_method", *train, "--method", "naive")
    assert done.returncode == 0, done.stderr
    done = call("--plugin", "naive_method", "predict", "model", "rows.csv", "--out", "out.csv")
    assert done.returncode == 0, done.stderr
    assert len(pd.read_csv(tmp_path / "out.csv")) == len(DATA.y)
    assert call("predict", "model", "rows.csv", "--out", "more.csv").returncode != 0
    shutil.rmtree(tmp_path / "model")
    assert call(*train, "--method", "naive").returncode == 2
    assert call("--plugin", "no_such_module", *train).returncode == 2
