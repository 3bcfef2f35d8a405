"""Shares of positive labels by category: cross-fitted, and without rare values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier

import fairdial
from fairdial import FairBayes
from fairdial.cli.categories import describe_cut_columns
from fairdial.estimators.learners import boosting
from fairdial.io.objects import read_objects, write_objects
from fairdial.io.onnx import export_onnx
from fairdial.io.plain import PLAIN
from fairdial.serve.deciding import Decider
from fairdial.tables.means import PRIOR_ROWS, MeanEncoder

# scikit-learn 1.6 says that 1.7 names columns in another way
pytestmark = pytest.mark.filterwarnings(r"ignore:\s*The format of the columns:FutureWarning")

N = 8_000
RNG = np.random.default_rng(0)
CODES = RNG.integers(0, 300, N)
TABLE = pd.DataFrame(
    {
        "job": np.char.add("job ", CODES.astype(str)),
        "age": RNG.normal(size=N),
        "shift": RNG.choice(["day", "night"], N),
        "name": [f"person {i}" for i in range(N)],
    }
)
TABLE.loc[::40, "job"] = None
EFFECT = RNG.normal(size=300)
Y = (EFFECT[CODES] + TABLE["age"] + RNG.normal(size=N) > 0).astype(int).to_numpy()
TEXTS = ["job", "shift", "name"]
GROUPS = RNG.choice(["f", "m"], N)
NEW = TABLE.assign(job=TABLE["job"].where(TABLE.index % 7 > 0, "new job")).iloc[:500]


def test_shares_are_those_of_the_rows_and_ten_more() -> None:
    encoder = MeanEncoder().fit(TABLE[TEXTS], Y)
    assert encoder.get_feature_names_out().tolist() == ["job=mean"]
    found = dict(zip(NEW["job"], encoder.transform(NEW[TEXTS])[:, 0], strict=True))
    for job, share in found.items():
        rows = TABLE["job"].isna() if job is None or job != job else TABLE["job"] == job
        n = rows.sum()
        expected = (Y[rows].sum() + PRIOR_ROWS * Y.mean()) / (n + PRIOR_ROWS)
        assert share == pytest.approx(expected if n >= 10 else Y.mean(), rel=1e-12)
    assert found["new job"] == Y.mean()


def test_no_rows_own_label_enters_its_share() -> None:
    encoder = MeanEncoder(random_state=3)
    before = encoder.fit_transform(TABLE[TEXTS], Y)
    for i in RNG.integers(0, N, 20):
        flipped = Y.copy()
        flipped[i] = 1 - flipped[i]
        after = encoder.fit_transform(TABLE[TEXTS], flipped)
        assert after[i, 0] == before[i, 0]
        assert (after != before).any()


def test_shares_of_noise_do_not_predict_the_labels_that_made_them() -> None:
    noise = RNG.integers(0, 2, N)
    means = MeanEncoder(random_state=0)
    crossed = np.corrcoef(means.fit_transform(TABLE[TEXTS], noise)[:, 0], noise)[0, 1]
    assert crossed < 0.05
    assert np.corrcoef(means.transform(TABLE[TEXTS])[:, 0], noise)[0, 1] > 0.1  # they would


@pytest.mark.parametrize(("n_values", "encoded"), [(64, 0), (65, 1)])
def test_columns_with_few_categories_are_left_out(n_values: int, encoded: int) -> None:
    table = pd.DataFrame({"x": [f"{i % n_values}" for i in range(1_000)]})
    assert MeanEncoder().fit_transform(table, np.arange(1_000) % 2).shape == (1_000, encoded)


def test_rare_values_are_not_stored_and_more_than_two_labels_encode_nothing() -> None:
    encoder = MeanEncoder().fit(TABLE[TEXTS], Y)
    assert "person" not in json.dumps([block.categories for block in encoder.blocks_])
    assert MeanEncoder().fit_transform(TABLE[TEXTS], CODES % 3).shape == (N, 0)


@pytest.mark.parametrize("dtype", ["category", "string"])
def test_shares_do_not_depend_on_the_type_of_text_or_on_the_labels_names(dtype: str) -> None:
    expected = MeanEncoder(random_state=0).fit_transform(TABLE[TEXTS], Y)
    labels = np.where(Y == 1, "yes", "no")
    found = MeanEncoder(random_state=0).fit_transform(TABLE[TEXTS].astype(dtype), labels)
    assert np.array_equal(found, expected)


def test_boosting_gains_from_means() -> None:
    train, test = slice(0, 6_000), slice(6_000, N)
    with_means = boosting(TEXTS, 0)
    without = boosting(TEXTS, 0).set_params(columntransformer__means="drop")
    scores = [
        model.fit(TABLE[train], Y[train]).score(TABLE[test], Y[test])
        for model in (with_means, without)
    ]
    assert scores[0] > scores[1]


@pytest.fixture(scope="module")
def model() -> FairBayes:
    estimator = boosting(TEXTS, 0, trees={"max_iter": 30})
    dial = FairBayes(estimator, tolerance=0.05, random_state=0)
    return dial.fit(TABLE, Y, sensitive_features=GROUPS)


def test_held_out_rows_do_not_enter_the_shares(model: FairBayes) -> None:
    (block,) = model.estimator_[0].named_transformers_["means"].blocks_
    assert block.unknown == pytest.approx(Y.mean(), abs=1e-3)  # stratified
    of_all = MeanEncoder().fit(TABLE[TEXTS], Y).blocks_[0]
    values = dict(zip(of_all.categories, of_all.codes, strict=True))
    same = [values[v] == c for v, c in zip(block.categories, block.codes, strict=True)]
    assert np.mean(same) < 0.1  # a fifth of the rows is missing


def test_a_model_with_means_is_plain_saved_served_and_exported(
    model: FairBayes, tmp_path: Path
) -> None:
    assert model.plain_ is not None, model.plain_error_
    expected = model.logits(NEW, sensitive_features=GROUPS[:500])
    model.save(tmp_path / "model")
    assert "person" not in (tmp_path / "model" / PLAIN).read_text()
    again = fairdial.load(tmp_path / "model")
    assert np.array_equal(again.logits(NEW, sensitive_features=GROUPS[:500]), expected)
    decider = Decider(again)
    rows = decider.rows(NEW.astype(object).where(NEW.notna(), None).to_dict("records"))
    scores = decider.scores(rows, decider.codes(GROUPS[:500].tolist()))
    assert np.allclose(scores, expected, rtol=1e-12)
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(export_onnx(model, tmp_path / "model.onnx"))
    feed: dict[str, Any] = {
        name: NEW[name].fillna("").to_numpy(object)[:, None] for name in TEXTS
    } | {"age": NEW[["age"]].to_numpy(), "group": GROUPS[:500].astype(object)}
    point = model.frontier_.at(0.05)
    logit, decision = session.run(None, {**feed, "thresholds": point.thresholds})
    assert np.allclose(logit, expected, rtol=1e-5)
    limits = point.thresholds[np.searchsorted(model.frontier_.groups, GROUPS[:500])]
    assert np.array_equal(decision, expected > limits)


def test_an_unconverted_pipeline_is_saved_too(model: FairBayes) -> None:
    step = model.estimator_[0]
    expected = step.transform(NEW)
    body, untrusted = write_objects({"step": step}, "objects.skops")
    assert not untrusted
    again = read_objects(body, "objects.skops")["step"]
    assert np.array_equal(again.transform(NEW), expected, equal_nan=True)


def test_the_command_line_counts_categories_with_means_as_known(model: FairBayes) -> None:
    assert not describe_cut_columns(model, TABLE)
    codes = boosting(TEXTS, 0, trees={"max_iter": 5}).set_params(columntransformer__means="drop")
    cut = FairBayes(codes, random_state=0).fit(TABLE, Y, sensitive_features=GROUPS)
    assert isinstance(cut.estimator_[-1], HistGradientBoostingClassifier)
    assert any("job" in sentence for sentence in describe_cut_columns(cut, TABLE))
