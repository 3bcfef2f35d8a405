from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logit
from sklearn.decomposition import PCA
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from fairdial import FairBayes, InvalidInputError, Network, TableEncoder
from fairdial.criteria import DEMOGRAPHIC_PARITY
from fairdial.errors import CheckpointError
from fairdial.nn.fitting import (
    Held,
    build,
    dial_figures,
    find_device,
    interval_figures,
)
from fairdial.nn.rows import TensorRows
from fairdial.sweeping import sweep_codes

# ---- theorem 1: what the dial gives back -------------------------------------------------------


def accuracy(mass: np.ndarray, eta: np.ndarray, kappa: np.ndarray) -> float:
    """Of the rule eta > kappa under a discrete law: mass (2, m), eta (2, m), kappa (2,)."""
    chosen = eta > kappa[:, None]
    return float((mass * np.where(chosen, eta, 1.0 - eta)).sum())


def gained(
    mass: np.ndarray, eta: np.ndarray, loose: np.ndarray, strict: np.ndarray
) -> float:  # eq:acc_dep
    low, high = np.minimum(loose, strict)[:, None], np.maximum(loose, strict)[:, None]
    inside = (eta > low) & (eta <= high)
    return float((mass * np.where(inside, np.abs(2.0 * eta - 1.0), 0.0)).sum())


@given(seed=st.integers(0, 2**32 - 1), atoms=st.integers(1, 12), share=st.floats(0.0, 1.0))
def test_accuracy_grows_by_what_lies_between_the_thresholds(
    seed: int, atoms: int, share: float
) -> None:
    rng = np.random.default_rng(seed)
    mass = rng.dirichlet(np.ones(2 * atoms)).reshape(2, atoms)
    eta = rng.random((2, atoms))
    strict = rng.random(2)
    loose = 0.5 + share * (strict - 0.5)  # between 1/2 and the strict threshold
    difference = accuracy(mass, eta, loose) - accuracy(mass, eta, strict)
    assert difference == pytest.approx(gained(mass, eta, loose, strict), abs=1e-12)


def test_a_threshold_that_crosses_a_half_breaks_the_identity() -> None:
    mass = np.array([[0.25, 0.25], [0.25, 0.25]])
    eta = np.array([[0.45, 0.55], [0.45, 0.55]])
    strict, loose = np.array([0.4, 0.4]), np.array([0.6, 0.6])  # on either side of 1/2
    difference = accuracy(mass, eta, loose) - accuracy(mass, eta, strict)
    assert difference == pytest.approx(0.0, abs=1e-12)
    assert gained(mass, eta, loose, strict) == pytest.approx(0.1)


def test_interval_figures_are_those_of_the_theorem() -> None:
    rng = np.random.default_rng(0)
    n = 2000
    codes = rng.integers(0, 2, n)
    eta = rng.beta(2, 2 + codes)
    z = logit(eta)
    frontier = sweep_codes(z, codes, rng.random(n) < eta, DEMOGRAPHIC_PARITY, (0, 1), min_count=1)
    fairest = np.array([-0.31, 0.52])
    found = interval_figures(z, codes, fairest, frontier)
    kappa = 1.0 / (1.0 + np.exp(-fairest))
    inside = (eta > np.minimum(0.5, kappa)[codes]) & (eta <= np.maximum(0.5, kappa)[codes])
    assert found["interval_share"] == inside.mean()
    assert found["acc_dep"] == pytest.approx(np.where(inside, np.abs(2 * eta - 1), 0).mean())
    assert (found["fairest_0"], found["fairest_1"]) == (-0.31, 0.52)
    # with the true eta, the expected accuracy that is given back is acc_dep itself
    mass, law = np.full((1, n), 1.0 / n), eta[None]
    back = sum(
        accuracy(mass[:, codes == a], law[:, codes == a], np.array([0.5]))
        - accuracy(mass[:, codes == a], law[:, codes == a], kappa[[a]])
        for a in (0, 1)
    )
    assert found["acc_dep"] == pytest.approx(back, abs=1e-12)


# ---- the score of an epoch ---------------------------------------------------------------------


def held_rows(n: int = 400, seed: int = 0) -> tuple[np.ndarray, Held]:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 2, n)
    z = rng.standard_normal(n) + 0.8 * (codes - 0.5)
    positive = rng.random(n) < 1.0 / (1.0 + np.exp(-2.0 * z))
    return z, Held(TensorRows(torch.zeros(n, 1)), codes, positive, 2, DEMOGRAPHIC_PARITY)


def test_the_dial_score_is_the_area_under_what_the_dial_delivers() -> None:
    z, data = held_rows()
    found = dial_figures(z, data, "dial")
    frontier = sweep_codes(z, data.codes, data.positive, DEMOGRAPHIC_PARITY, (0, 1), min_count=1)
    tolerances = np.linspace(0.0, 1.0, 4001)
    states, _ = frontier.states.first_within(tolerances)
    delivered = frontier._accuracy(frontier.states.read(states)[1])
    assert found["score"] == pytest.approx(np.trapezoid(delivered, tolerances), abs=2e-3)
    assert found["gap"] == frontier.gap[0]
    assert found["accuracy"] == frontier.accuracy[0]


def test_the_score_can_be_the_papers_hypervolume() -> None:
    z, data = held_rows()
    found = dial_figures(z, data, "hypervolume")
    assert found["score"] == found["hypervolume"]
    other = dial_figures(z, data, "dial")
    assert found["hypervolume"] == other["hypervolume"]
    frontier = sweep_codes(z, data.codes, data.positive, DEMOGRAPHIC_PARITY, (0, 1), min_count=1)
    states, _ = frontier.states.first_within(np.linspace(0.0, frontier.gap[0], 50))
    best = np.maximum.accumulate(frontier.accuracy[states])  # of those within a gap
    gaps = frontier.gap[states]
    area = float((best * np.diff(np.append(gaps, 1.0))).sum())
    assert found["hypervolume"] == pytest.approx(area, abs=1e-12)


def test_better_scores_have_a_better_score() -> None:
    z, data = held_rows()
    noise = np.random.default_rng(1).standard_normal(len(z))
    figures = [dial_figures(z + level * noise, data)["score"] for level in (0.0, 1.0, 5.0)]
    assert figures[0] > figures[1] > figures[2]


def test_validation_rows_of_one_group_are_scored_by_accuracy() -> None:
    z, data = held_rows()
    one = data.codes == 0
    data.codes, data.positive = data.codes[one], data.positive[one]
    found = dial_figures(z[one], data)
    right = ((z[one] > 0) == data.positive).mean()
    assert found == {"score": right, "accuracy": right}


# ---- nets and devices --------------------------------------------------------------------------


def test_initial_weights_depend_on_the_seed_alone() -> None:
    sample = torch.zeros(2, 5)
    network = Network(members=2, hidden=(6,), head=3)
    one, two, other = (build(network, sample, 2, seed) for seed in (0, 0, 1))
    assert all(torch.equal(p, q) for p, q in zip(one.parameters(), two.parameters(), strict=True))
    assert not torch.equal(next(one.parameters()), next(other.parameters()))


def test_a_trunk_must_give_a_row_for_a_row() -> None:
    class Sums(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sum(dim=0, keepdim=True)

    with pytest.raises(InvalidInputError, match="`trunk`"):
        build(Network(trunk=Sums()), torch.zeros(2, 5), 2, 0)


def test_an_unknown_device_is_refused() -> None:
    assert find_device("cpu").type == "cpu"
    with pytest.raises(InvalidInputError, match="`device`"):
        find_device("abacus")


# ---- embeddings --------------------------------------------------------------------------------

EMBEDDED = np.random.default_rng(0).normal(size=(80, 300))
FRAME = pd.DataFrame(EMBEDDED).add_prefix("x")
NARROW = EMBEDDED[:, :255]


class Items(torch.utils.data.Dataset):
    """Rows of an array, one by one."""

    def __init__(self, rows: np.ndarray) -> None:
        self.rows = torch.as_tensor(rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> torch.Tensor:
        return self.rows[i]


def chosen(X: Any, **settings: Any) -> tuple[type, Any]:
    """The kind of the encoder, and the dropout of the trained net."""
    network = Network(hidden=(4,), head=3, members=1, epochs=1, **settings)
    model = FairBayes(network, calibration=None, random_state=0)
    model.fit(X, np.arange(80) % 3 == 0, sensitive_features=np.arange(80) % 2)
    return type(model.encoder_), getattr(model.net_.trunk, "dropout", None)


@pytest.mark.parametrize(
    "X", [EMBEDDED, EMBEDDED.astype(np.float32), FRAME, FRAME.where(FRAME > 0), EMBEDDED.tolist()]
)
def test_embeddings_are_scaled_and_half_of_the_units_dropped(X: Any) -> None:
    assert chosen(X) == (Pipeline, 0.5)


@pytest.mark.parametrize("X", [torch.as_tensor(EMBEDDED), Items(EMBEDDED)])
def test_embeddings_that_are_torchs_stay_as_they_are_and_have_dropout(X: Any) -> None:
    assert chosen(X) == (type(None), 0.5)


def test_many_numbers_without_an_encoder_have_dropout() -> None:
    assert chosen(EMBEDDED, encoder=None) == (type(None), 0.5)
    assert chosen(FRAME, encoder=StandardScaler()) == (StandardScaler, 0.5)


@pytest.mark.parametrize(
    "X",
    [
        NARROW,
        FRAME.iloc[:, :255],
        FRAME.round().assign(text="a"),  # columns of a few values beside a text
        (EMBEDDED > 0),
        EMBEDDED.round().astype(object),
    ],
)
def test_tables_are_encoded_by_columns_and_have_no_dropout(X: Any) -> None:
    assert chosen(X) == (TableEncoder, 0.0)


@pytest.mark.parametrize(
    ("X", "encoder"),
    [
        (EMBEDDED, TableEncoder(n_bins=2)),
        (NARROW.round(), OneHotEncoder(sparse_output=False, handle_unknown="ignore")),
        (EMBEDDED, PCA(5)),
        (NARROW, None),
        (torch.as_tensor(NARROW), "auto"),
    ],
)
def test_inputs_made_of_columns_and_few_inputs_have_no_dropout(X: Any, encoder: Any) -> None:
    assert chosen(X, encoder=encoder)[1] == 0.0


@pytest.mark.parametrize("dropout", [0.0, 0.2, np.float32(0.25)])
def test_dropout_that_is_given_wins(dropout: float) -> None:
    assert chosen(EMBEDDED, dropout=dropout)[1] == dropout
    assert chosen(NARROW, dropout=dropout)[1] == dropout


def test_a_checkpoint_of_another_dropout_is_refused(tmp_path: Path) -> None:
    assert chosen(EMBEDDED, encoder=None, checkpoint=tmp_path)[1] == 0.5
    with pytest.raises(CheckpointError, match="belongs to another run"):  # the same inputs
        chosen(EMBEDDED.astype(object), encoder=FunctionTransformer(), checkpoint=tmp_path)


def test_a_trunk_of_ones_own_has_its_own_dropout() -> None:
    assert chosen(EMBEDDED, trunk=torch.nn.Linear(300, 3)) == (Pipeline, None)
