"""The boosting libraries on the command line: train, predict and export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

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
