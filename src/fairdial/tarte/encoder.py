"""TarteEncoder: rows of a table as the readout of a pretrained transformer."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from fairdial._validation import check_choice, check_count
from fairdial.columns import as_table, find_columns, keep_names
from fairdial.errors import InvalidInputError
from fairdial.tarte.cells import SCALERS, Cells, Features, Reader
from fairdial.tarte.files import (
    check_unchanged,
    find_file,
    fingerprint,
    missing_extra,
    need,
    read_config,
    word_vectors,
)
from fairdial.tarte.store import kept

FORMAT = 1  # of kept features: other code that gives other features counts on
TEXTS = 4096  # whose vectors a fitted encoder holds: the most frequent ones of the training rows


class TarteEncoder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """TARTE as an encoder: each row becomes the readout of its pretrained transformer.

    TARTE [1]_ is a foundation model for tables; the paper's networks for tables are trained on its
    features, which are never changed. A cell is its column's name and its value, both as vectors of
    fastText; the transformer looks at all cells of a row. Needs the package tarte-ai (in fairdial's
    folder: ``pip install '.[tarte]' -c constraints.txt``, about 2.6 GB with a CPU build of torch),
    and three files. Nothing is downloaded.

    *Texts* and pandas' categories, known or new, are read as words, in lower case. *Numbers* and
    booleans are scaled, and multiply the vector of the column's name; infinite ones are an error.
    Of *dates* (pandas' and numpy's types) the year is taken as a number; dates written as texts are
    texts. A missing value is left out: the row has one cell less. A column that is missing in all
    training rows is an error that names it.

    Parameters
    ----------
    weights : path
        Pretrained weights: ``tarte_pretrained_weights.pt`` of ``inria-soda/tarte`` at Hugging Face.
    config : path
        Their sizes: ``tarte_pretrained_configs.json``, at the same place.
    fasttext : path
        Vectors of words: ``cc.en.300.bin`` of ``hi-paris/fastText`` at Hugging Face.
    layer : int
        The last layer that is run, counted from 0; 2 is the full depth of the official weights.
    batch_rows : int
        Rows that go through the transformer at once: memory, not features, depend on it.
    cache : path, optional
        Folder in which features are kept. The same rows, with the same files and settings and
        after the same fit, are then computed once, whoever asks.
    scaling : {"robust", "power"}
        Of numbers: by median and interquartile range, as the paper's authors do, or tarte-ai's own
        power transform. Years of dates have both.
    device : str
        "auto", "cpu", "cuda", ...

    Attributes
    ----------
    n_features_in_ : int
        How many columns the table has.
    n_features_out_ : int
        How many features a row has: 768 with the official files.
    feature_names_in_ : array of str
        The columns' names, if the table has names and all are texts.

    Notes
    -----
    Only :meth:`fit` learns: kinds of columns and scales. The features of a row don't depend on the
    rows beside it, up to rounding. The readout is normalised (layer normalisation without weights),
    and no projection of the pretraining is applied.

    A fitted encoder holds paths, not weights; it can be pickled, and needs the files where it is
    used. The vectors of frequent texts of the training rows are part of it, so that the large file
    of fastText is opened only for other texts; open, it stays in memory.

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
        weights: Any,
        config: Any,
        fasttext: Any,
        *,
        layer: int = 2,
        batch_rows: int = 256,
        cache: Any = None,
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
        """Learn kinds of columns and scales of numbers from training rows; look into the files.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n, d)
            Training rows.
        y : ignored
            Labels are not looked at.
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
                f"`layer` must be below {depth}, the layers in `config`, got {self.layer}."
            )
        found = {"weights": fingerprint(weights), "fasttext": fingerprint(fasttext)}
        open_transformer(weights, found["weights"], sizes, self.layer, self.device)
        code = Path(need("fairdial.nn.tarte").tarte_model().__file__)
        cells = reader.read(table, range(len(reader.names)))
        texts = tuple(dict.fromkeys((*cells.names, *_frequent(cells))))
        self.vectors_ = word_vectors(fasttext, texts, sizes["dim_input"])
        self.texts_, self.reader_, self.config_ = texts, reader, sizes
        self.fingerprints_ = found | {"code": fingerprint(code)}
        self.n_features_out_ = sizes["dim_transformer"]
        keep_names(self, reader.names, named=reader.named)
        return self

    def transform(self, X: Any) -> Features:
        """Features of rows.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n, d)
            Rows with the columns of the training rows.

        Returns
        -------
        array of shape (n, ``n_features_out_``)
            Float32 numbers.
        """
        check_is_fitted(self)
        table = as_table(X, self)
        reader = self.reader_
        cells = reader.read(table, find_columns(table, reader.names, self, named=reader.named))
        if self.cache is None:
            return self._compute(cells)
        told = [FORMAT, cells.digest(), self.fingerprints_, self.config_, self.layer]
        key = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
        shape = len(cells), self.n_features_out_
        return kept(self.cache, key, shape, lambda: self._compute(cells))

    def _compute(self, cells: Cells) -> Features:
        names, words = self._vectors(cells)
        weights = find_file(self.weights, "weights")
        known = self.fingerprints_["weights"]
        transformer = open_transformer(weights, known, self.config_, self.layer, self.device)
        readouts = need("fairdial.nn.tarte").readouts
        features = np.empty((len(cells), self.n_features_out_), np.float32)
        for start in range(0, len(cells), self.batch_rows):
            rows = slice(start, start + self.batch_rows)
            features[rows] = readouts(transformer, *cells.tokens(rows, names, words))
        return features

    def _vectors(self, cells: Cells) -> tuple[Features, Features]:
        """Vectors of the columns' names and of the texts; fastText is asked for new ones only."""
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


def open_transformer(path: Path, known: str, sizes: dict[str, int], layer: int, device: str) -> Any:
    """The transformer of a file that is the known one; the last one opened stays in memory."""
    check_unchanged(path, "weights", known)
    where = need("fairdial.nn.fitting").find_device(device)
    return _load(path, known, json.dumps(sizes), layer, where)


@lru_cache(maxsize=1)
def _load(path: Path, known: str, sizes: str, layer: int, device: Any) -> Any:  # noqa: ARG001
    try:
        load = need("fairdial.nn.tarte").load_transformer
        return load(path, json.loads(sizes), layer, device)
    except ModuleNotFoundError as error:
        raise missing_extra(error) from None


def _frequent(cells: Cells) -> list[str]:
    """The most frequent texts."""
    counts = np.bincount(cells.codes[cells.codes >= 0], minlength=len(cells.texts))
    return [cells.texts[i] for i in np.argsort(-counts, kind="stable")[:TEXTS]]
