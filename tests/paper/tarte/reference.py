"""tarte-ai's own features, in an interpreter of its own: its import leaves much behind.

``python reference.py FOLDER`` reads ``tables.pkl`` there, (train, rows, layer, scaling) by name,
and writes ``features.npz``.
"""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import Any


def as_tarte_ai_reads(X: Any) -> Any:
    """Texts as objects, numbers as floats: it fails on other types."""
    kinds = {}
    for name, column in X.items():
        if column.dtype.kind == "M":
            continue
        numeric = column.dtype.kind in "biuf" or str(column.dtype) == "Int64"
        kinds[name] = "float64" if numeric else object
    return X.astype(kinds)


def features(folder: Path, train: Any, rows: Any, layer: int, scaling: str) -> Any:
    """Of its pipeline, with the scaling of the paper's authors or its own."""
    from sklearn.preprocessing import RobustScaler
    from tarte_ai import TARTE_TableEncoder, TARTE_TablePreprocessor

    train, rows = as_tarte_ai_reads(train), as_tarte_ai_reads(rows)
    prepare = TARTE_TablePreprocessor(fasttext_model_path=str(folder / "words.bin")).fit(train)
    if scaling == "robust" and prepare.num_col_names_:
        numbers = train[prepare.num_col_names_]
        prepare.num_transformer_ = RobustScaler().set_output(transform="pandas").fit(numbers)
    cells = prepare.transform(rows)
    encode = TARTE_TableEncoder(
        pretrained_model_path=str(folder / "weights.pt"),
        pretrained_model_config_path=str(folder / "config.json"),
        dim_embedding=json.loads((folder / "config.json").read_text())["dim_transformer"],
        layer_index=layer,
    )
    return encode.fit(cells).transform(cells)


def main(folder: Path) -> None:
    """Write the features of all tables."""
    import numpy as np

    tables = pickle.loads((folder / "tables.pkl").read_bytes())
    np.savez(folder / "features.npz", **{k: features(folder, *v) for k, v in tables.items()})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
