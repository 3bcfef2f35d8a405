from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from fairdial import FairBayes, InvalidInputError, Network, TableEncoder
from fairdial.errors import CheckpointError
from fairdial.nn.build import build_net
from fairdial.nn.data import find_device

# ---- nets and devices --------------------------------------------------------------------------


def test_initial_weights_depend_only_on_the_seed() -> None:
    sample = torch.zeros(2, 5)
    network = Network(members=2, hidden=(6,), head=3)
    one, two, other = (build_net(network, sample, 2, seed) for seed in (0, 0, 1))
    assert all(torch.equal(p, q) for p, q in zip(one.parameters(), two.parameters(), strict=True))
    assert not torch.equal(next(one.parameters()), next(other.parameters()))


def test_a_trunk_must_return_one_row_per_row() -> None:
    class Sums(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sum(dim=0, keepdim=True)

    with pytest.raises(InvalidInputError, match="`trunk`"):
        build_net(Network(trunk=Sums()), torch.zeros(2, 5), 2, 0)


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
def test_embeddings_given_as_tensors_are_unchanged_and_have_dropout(X: Any) -> None:
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
def test_explicit_dropout_wins(dropout: float) -> None:
    assert chosen(EMBEDDED, dropout=dropout)[1] == dropout
    assert chosen(NARROW, dropout=dropout)[1] == dropout


def test_a_checkpoint_of_another_dropout_is_refused(tmp_path: Path) -> None:
    assert chosen(EMBEDDED, encoder=None, checkpoint=tmp_path)[1] == 0.5
    with pytest.raises(CheckpointError, match="`checkpoint`"):  # the same inputs
        chosen(EMBEDDED.astype(object), encoder=FunctionTransformer(), checkpoint=tmp_path)


def test_a_users_trunk_has_its_own_dropout() -> None:
    assert chosen(EMBEDDED, trunk=torch.nn.Linear(300, 3)) == (Pipeline, None)
