"""Time TARTE's features: rows of Adult through a transformer of its size.

Weights are random and word vectors tiny, which doesn't change the time per row. One thread; the
transformer with several batch sizes, and features from the cache. Needs the extra ``tarte``.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import fasttext
import torch
from common import cpu_time, machine, milliseconds, table

from fairdial import TarteEncoder
from fairdial.datasets import load_adult
from fairdial.nn.tarte import tarte_model

SIZES = {  # tarte-ai's defaults
    "dim_input": 300,
    "dim_transformer": 768,
    "dim_feedforward": 2048,
    "num_heads": 24,
    "num_layers_transformer": 3,
    "dropout": 0.1,
    "dim_projection": [768],
}
QUICK = {"dim_transformer": 48, "dim_feedforward": 64, "dim_projection": [48]}


def make_files(folder: Path, sizes: dict[str, Any]) -> dict[str, str]:
    """Write the three files, and return their paths."""
    paths = {name: str(folder / name) for name in ("weights", "config", "fasttext")}
    torch.save(tarte_model().TARTE_Pretrain_NN(**sizes).state_dict(), paths["weights"])
    Path(paths["config"]).write_text(json.dumps(sizes))
    (folder / "text").write_text("age sex race work education\n" * 9)
    vectors = fasttext.train_unsupervised(
        str(folder / "text"), dim=sizes["dim_input"], bucket=50, minCount=1, epoch=1, verbose=0
    )
    vectors.save_model(paths["fasttext"])
    return paths


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--quick", action="store_true", help="a short run, to check that it works")
    options = parser.parse_args()
    n_rows = 100 if options.quick else options.rows
    X = load_adult().X.iloc[:n_rows]
    torch.set_num_threads(1)
    print(machine(("torch", "tarte-ai", "fasttext")) + "\n")
    lines = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = make_files(folder, SIZES | (QUICK if options.quick else {}))
        encoder = TarteEncoder(**files, device="cpu").fit(X)
        trials: list[tuple[str, dict[str, Any]]] = [
            (f"computed, {rows} at once", {"batch_rows": rows}) for rows in (16, 32, 64, 256, 1024)
        ]
        trials.append(("read from the cache", {"cache": folder / "cache"}))
        encoder.set_params(cache=folder / "cache").transform(X)
        for what, settings in trials:
            encoder.set_params(**{"cache": None} | settings)
            seconds = cpu_time(lambda: encoder.transform(X), 2).seconds
            lines.append([what, milliseconds(seconds / n_rows * 1000)])
    print(table(["features", "ms for 1,000 rows"], lines))


if __name__ == "__main__":
    main()
