"""The boosting libraries on the command line: train, predict and export."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fairdial

RNG = np.random.default_rng(0)
N = 500
TABLE = pd.DataFrame(
    {
        "age": RNG.integers(18, 80, N),
        "job": RNG.choice(["cook", "nurse", "pilot"], N),
        "sex": RNG.choice(["f", "m"], N),
    }
)
TABLE["paid"] = np.where(
    0.05 * TABLE["age"] + 2 * (TABLE["job"] == "cook") + RNG.normal(size=N) > 3, "yes", "no"
)


@pytest.mark.parametrize("method", ["boosting", "lightgbm", "xgboost"])
@pytest.mark.filterwarnings("ignore::fairdial.FairdialWarning")
def test_a_booster_is_trained_decides_and_is_exported(
    method: str, shell: Any, tmp_path: Path
) -> None:
    if method != "boosting":
        pytest.importorskip(method)
    pytest.importorskip("onnx")
    TABLE.to_csv(tmp_path / "rows.csv", index=False)
    new = TABLE.assign(job=TABLE["job"].where(TABLE.index % 3 > 0, "baker")).head(40)
    new.to_csv(tmp_path / "new.csv", index=False)
    model = tmp_path / "model"
    done = shell("train", tmp_path / "rows.csv", "--label", "paid", "--positive", "yes",
                 "--sensitive", "sex", "--method", method, "--out", model)  # fmt: skip
    assert done.exit_code == 0, done.output
    assert not (model / "objects.skops").exists()
    done = shell("predict", model, tmp_path / "new.csv", "--out", tmp_path / "out.csv")
    assert done.exit_code == 0, done.output
    assert set(pd.read_csv(tmp_path / "out.csv")["decision"]) == {"no", "yes"}
    done = shell("export", model, "--onnx", tmp_path / "model.onnx")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "model.onnx").exists()


def test_predicting_by_a_plain_model_needs_no_scikit_learn(shell: Any, tmp_path: Path) -> None:
    TABLE.to_csv(tmp_path / "rows.csv", index=False)
    model, rows = tmp_path / "model", tmp_path / "rows.csv"
    done = shell("train", rows, "--label", "paid", "--positive", "yes", "--sensitive", "sex",
                 "--method", "logistic", "--tolerance", "0.1", "--out", model)  # fmt: skip
    assert done.exit_code == 0, done.output
    code = (
        "import sys; from fairdial.cli import main; "
        f"main(['predict', {str(model)!r}, {str(rows)!r}, '--out', {str(tmp_path / 'out.csv')!r}],"
        " standalone_mode=False); sys.exit('sklearn' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    found, estimator = pd.read_csv(tmp_path / "out.csv"), fairdial.load(model)
    X = TABLE[["age", "job"]]
    assert found["decision"].tolist() == (
        estimator.predict(TABLE[[*X, "sex"]], tolerance=0.1).tolist()
    )
    margins = estimator.decision_function(TABLE[[*X, "sex"]], tolerance=0.1)
    assert np.array_equal(found["margin"], margins)
