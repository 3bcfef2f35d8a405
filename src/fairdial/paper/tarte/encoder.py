"""TarteEncoder: features of a table's rows from a pretrained transformer."""

from __future__ import annotations

import hashlib
import json
import os
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from fairdial._validation import check_choice, check_count
from fairdial.errors import InvalidInputError
from fairdial.nn.feature_cache import Features, cached
from fairdial.paper.tarte.cells import SCALERS, Cells, Reader
from fairdial.paper.tarte.files import (
    check_unchanged,
    find_file,
    fingerprint,
    missing_package,
    read_config,
    require_package,
    word_vectors,
)
from fairdial.tables.columns import as_table, find_columns, keep_names

if TYPE_CHECKING:
    from fairdial.nn.tarte import Transformer

FORMAT = 1  # of cached features; raise it if the code gives other features
TEXTS = 4096  # most frequent texts of the training rows, whose vectors a fitted encoder holds


class TarteEncoder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """TARTE as an encoder: each row becomes the readout of its pretrained transformer.

    TARTE [1]_ is a foundation model for tables; the paper's networks for tables are trained on its
    frozen features. A cell is its column's name and its value, both as fastText vectors; the
    transformer attends to all cells of a row. Needs the package tarte-ai (in fairdial's folder:
    ``pip install '.[tarte]' -c constraints.txt``, about 2.6 GB with a CPU build of torch) and three
    files. Nothing is downloaded.

    *Texts* and pandas categories, known or new, are read as lowercase words. *Numbers* and booleans
    are scaled and multiply the vector of the column's name; infinite ones raise an error. *Dates*
    (pandas and NumPy types) are read as their year; dates written as text are texts. A missing
    value is left out: the row has one cell less. A column that is missing in all training rows
    raises an error.

    Parameters
    ----------
    weights : path
        Pretrained weights: ``tarte_pretrained_weights.pt`` of ``inria-soda/tarte`` on Hugging Face.
    config : path
        Their sizes: ``tarte_pretrained_configs.json``, from the same place.
    fasttext : path
        Word vectors: ``cc.en.300.bin`` of ``hi-paris/fastText`` on Hugging Face.
    layer : int
        The last layer that runs, counted from 0; 2 is the full depth of the official weights.
    batch_rows : int
        Rows that go through the transformer at once; affects memory, not features.
    cache : path, optional
        Folder for features: the same rows, with the same files, settings and fit, are computed
        once.
    scaling : {"robust", "power"}
        How numbers are scaled: by median and interquartile range, as the paper's authors do, or by
        tarte-ai's own power transform. Years are scaled by both.
    device : str
        "auto", "cpu", "cuda", ...

    Attributes
    ----------
    n_features_in_ : int
        Number of columns of the table.
    n_features_out_ : int
        Number of features of a row: 768 with the official files.
    feature_names_in_ : array of str
        The columns' names, if all are strings.

    Notes
    -----
    Only :meth:`fit` learns: kinds of columns and scales. The features of a row don't depend on
    other rows, up to rounding. The readout is normalized (layer normalization without weights), and
    no projection from pretraining is applied.

    A fitted encoder holds paths, not weights; it can be pickled, and needs the files wherever it is
    used. It holds the vectors of frequent texts of the training rows, so the large fastText file is
    opened only for other texts; once open, it stays in memory.

    References
    ----------
    .. [1] M. J. Kim, F. Lefebvre, G. Brison, A. Perez-Lebel, G. Varoquaux, "Table Foundation
       Models: on knowledge pre-training for tabular learning", arXiv:2505.14415, 2025.

    Examples
    --------
    >>> from fairdial import GFB, TarteEncoder, paper_settings
    >>> encoder = TarteEncoder(
    ...     "tarte_pretrained_weights.pt",
    ...     "tarte_pretrained_configs.json",
    ...     "cc.en.300.bin",
    ...     cache="features",
    ... )
    >>> settings = paper_settings("gfb", "adult")
    >>> settings["network"].set_params(encoder=encoder).encoder.layer
    2
    >>> model = GFB(**settings)  # model.fit reads the files
    """

    n_features_in_: int
    n_features_out_: int
    feature_names_in_: NDArray[np.object_]

    def __init__(
        self,
        weights: str | os.PathLike[str],
        config: str | os.PathLike[str],
        fasttext: str | os.PathLike[str],
        *,
        layer: int = 2,
        batch_rows: int = 256,
        cache: str | os.PathLike[str] | None = None,
        scaling: str = "robust",
        device: str = "auto",
    ) -> None:
        self.weights = weights
        self.config = config
        self.fasttext = fasttext
        self.layer = layer
        self.batch_rows = batch_rows
        self.cache = cache
        self.scaling = scaling
        self.device = device

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.transformer_tags.preserves_dtype = []  # always float32
        return tags

    @property
    def _n_features_out(self) -> int:  # what scikit-learn calls it
        return self.n_features_out_

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        """Learn kinds of columns and scales of numbers from training rows, and check the files.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n, d)
            Training rows.
        y : ignored
            Labels are not used.
        """
        check_count(self.layer, "layer", least=0)
        check_count(self.batch_rows, "batch_rows")
        check_choice(self.scaling, "scaling", tuple(SCALERS))
        table = as_table(X, self)
        reader = Reader.learn(table, self.scaling)
        weights, config, fasttext = (
            find_file(getattr(self, name), name) for name in ("weights", "config", "fasttext")
        )
        sizes = read_config(config)
        depth = sizes["num_layers_transformer"]
        if self.layer >= depth:
            raise InvalidInputError(
                "layer", f"be below {depth}, the layers in `config`", given=self.layer
            )
        found = {"weights": fingerprint(weights), "fasttext": fingerprint(fasttext)}
        open_transformer(weights, found["weights"], sizes, self.layer, self.device)
        code = _model_code()
        cells = reader.read(table, range(len(reader.names)))
        texts = tuple(dict.fromkeys((*cells.names, *_frequent(cells))))
        self.vectors_ = word_vectors(fasttext, texts, sizes["dim_input"])
        self.texts_, self.reader_, self.config_ = texts, reader, sizes
        self.fingerprints_ = found | {"code": fingerprint(code)}
        self.n_features_out_ = sizes["dim_transformer"]
        keep_names(self, reader.names, named=reader.named)
        return self

    def transform(self, X: Any) -> Features:
        """Return the features of rows.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n, d)
            Rows with the columns of the training rows.

        Returns
        -------
        array of shape (n, ``n_features_out_``)
            Features, as float32.
        """
        check_is_fitted(self)
        table = as_table(X, self)
        reader = self.reader_
        cells = reader.read(table, find_columns(table, reader.names, self, named=reader.named))
        if self.cache is None:
            return self._compute(cells)
        source = [FORMAT, cells.digest(), self.fingerprints_, self.config_, self.layer]
        key = hashlib.sha256(json.dumps(source, sort_keys=True).encode()).hexdigest()
        shape = len(cells), self.n_features_out_
        return cached(self.cache, key, shape, lambda: self._compute(cells))

    def _compute(self, cells: Cells) -> Features:
        names, words = self._vectors(cells)
        weights = find_file(self.weights, "weights")
        known = self.fingerprints_["weights"]
        transformer = open_transformer(weights, known, self.config_, self.layer, self.device)
        from fairdial.nn.tarte import readouts

        features = np.empty((len(cells), self.n_features_out_), np.float32)
        for start in range(0, len(cells), self.batch_rows):
            rows = slice(start, start + self.batch_rows)
            features[rows] = readouts(transformer, *cells.tokens(rows, names, words))
        return features

    def _vectors(self, cells: Cells) -> tuple[Features, Features]:
        """Return vectors of the columns' names and of the texts; only new ones need fastText."""
        dim = self.config_["dim_input"]
        vectors = dict(zip(self.texts_, self.vectors_, strict=True))
        new = [text for text in cells.texts if text not in vectors]
        if new:
            path = find_file(self.fasttext, "fasttext")
            check_unchanged(path, "fasttext", self.fingerprints_["fasttext"])
            vectors.update(zip(new, word_vectors(path, new, dim), strict=True))
        names = np.array([vectors[name] for name in cells.names])
        blank = np.zeros(dim, np.float32)
        return names, np.array([*(vectors[text] for text in cells.texts), blank])


def open_transformer(
    path: Path, known: str, sizes: dict[str, int], layer: int, device: str
) -> Transformer:
    """Return the transformer of an unchanged file; the last one opened stays in memory."""
    check_unchanged(path, "weights", known)
    return _load(path, known, json.dumps(sizes), layer, device)


@lru_cache(maxsize=1)
def _load(
    path: Path,
    known: str,  # noqa: ARG001
    sizes: str,
    layer: int,
    device: str,
) -> Transformer:
    require_package("torch")
    from fairdial.nn.data import find_device
    from fairdial.nn.tarte import load_transformer

    where = find_device(device)
    try:
        return load_transformer(path, json.loads(sizes), layer, where)
    except ModuleNotFoundError as error:
        raise missing_package(error.name) from None


def _model_code() -> Path:
    """Return the file of tarte-ai's networks."""
    from fairdial.nn.tarte import tarte_model

    return Path(str(tarte_model().__file__))


def _frequent(cells: Cells) -> list[str]:
    """Return the most frequent texts."""
    counts = np.bincount(cells.codes[cells.codes >= 0], minlength=len(cells.texts))
    return [cells.texts[i] for i in np.argsort(-counts, kind="stable")[:TEXTS]]
