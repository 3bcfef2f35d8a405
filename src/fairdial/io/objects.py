"""scikit-learn objects in skops files, with a fixed list of allowed types.

skops builds objects of named types from plain data and never runs code from the file. Which types
it may build is decided here: those that skops considers harmless, those in :data:`ALLOWED`, and
those that the user names. Native code follows the indices in trees unchecked, so trees are checked
first (:mod:`fairdial.io.trees`).
"""

from __future__ import annotations

import io
import json
import sys
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import numpy as np
from sklearn.utils.validation import check_array

from fairdial.errors import InvalidInputError, MissingExtraError, ModelFileError, install_command
from fairdial.io.trees import check_trees
from fairdial.io.values import Json
from fairdial.tables.categories import CategoryEncoder
from fairdial.tables.encoder import TableEncoder
from fairdial.tables.frequent import FrequentEncoder
from fairdial.tables.inputs import Code, Number, OneHot
from fairdial.tables.means import MeanEncoder
from fairdial.tables.plan import Categorical, Numeric

OWN = (
    CategoryEncoder,
    FrequentEncoder,
    MeanEncoder,
    TableEncoder,
    Categorical,
    Numeric,
    Code,
    Number,
    OneHot,
)
RENAMED = {  # types of fairdial 0.1, by module and name
    ("fairdial.encoders", "FrequentEncoder"): FrequentEncoder,
    ("fairdial.encoders", "TableEncoder"): TableEncoder,
    ("fairdial.encoders", "_Categorical"): Categorical,
    ("fairdial.encoders", "_Numeric"): Numeric,
}
ALLOWED = (  # besides what skops considers harmless, such as scikit-learn's public estimators
    *(f"{kind.__module__}.{kind.__qualname__}" for kind in OWN),
    "functools.partial",  # of check_array alone, with keywords alone (_check_partial)
    "numpy.dtype",
    "numpy.number",
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "sklearn.compose._column_transformer._RemainderColsList",
    "sklearn.compose._column_transformer.make_column_selector",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.feature_selection._univariate_selection.f_classif",
    "sklearn.metrics._classification.accuracy_score",
    "sklearn.metrics._classification.balanced_accuracy_score",
    "sklearn.metrics._classification.log_loss",
    "sklearn.metrics._ranking.average_precision_score",
    "sklearn.metrics._ranking.roc_auc_score",
    "sklearn.metrics._scorer._CurveScorer",
    "sklearn.metrics._scorer._PassthroughScorer",
    "sklearn.metrics._scorer._Scorer",
    "sklearn.model_selection._split.KFold",
    "sklearn.model_selection._split.StratifiedKFold",
    "sklearn.multiclass._ConstantPredictor",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
    "sklearn.tree._tree.Tree",
    "sklearn.utils._metadata_requests.MetadataRequest",
    "sklearn.utils._metadata_requests.MethodMetadataRequest",
    "sklearn.utils.validation.check_array",
)
SCHEMA = "schema.json"  # of a skops file
UNUSED = tuple(f"sklearn.externals.array_api_compat.{name}" for name in ("cupy", "dask", "torch"))


# ---- skops -------------------------------------------------------------------------------------


def _skops(file: str) -> ModuleType:
    try:
        import skops.io
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"`{file}` holds scikit-learn objects, which need skops: {install_command('save')}."
        ) from error
    module: ModuleType = skops.io
    return module


def import_skops() -> None:
    """Import skops without the array libraries that it never uses, so that commands start fast.

    skops imports every module of scikit-learn, and some of these import torch and dask, which takes
    longer than all the rest. Meanwhile those modules can't be imported: only for processes with
    one thread.
    """
    try:
        with _left_out(UNUSED):
            import skops.io  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"saving scikit-learn models needs skops: {install_command('save')}."
        ) from error


class _Refuse(MetaPathFinder):
    """Pretends that some modules aren't installed."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Raise for these modules; leave others to the next finder."""
        if fullname in self.names:
            raise ModuleNotFoundError(fullname, name=fullname)
        return None


@contextmanager
def _left_out(names: Sequence[str]) -> Iterator[None]:
    refuse = _Refuse(names)
    sys.meta_path.insert(0, refuse)
    try:
        yield
    finally:
        sys.meta_path.remove(refuse)


# ---- writing and reading -----------------------------------------------------------------------


def write_objects(
    objects: dict[str, Any], file: str, trusted: Sequence[str] = ()
) -> tuple[bytes, list[str]]:
    """Return a skops file of named objects, and its types that loading doesn't allow by itself."""
    skops = _skops(file)
    try:
        body: bytes = skops.dumps(objects, compression=zipfile.ZIP_STORED)
        untrusted = set(skops.get_untrusted_types(data=body)) - {*ALLOWED, *trusted}
        return body, sorted(untrusted)
    except Exception as error:
        kinds = ", ".join(sorted({type(value).__name__ for value in objects.values()}))
        raise InvalidInputError(
            "estimator", "be something that skops can save", given=f"{kinds} ({error})"
        ) from error


def read_objects(body: bytes, file: str, trusted: Sequence[str] = ()) -> dict[str, Any]:
    """Return the objects that :func:`write_objects` wrote; refuse types that aren't allowed."""
    skops = _skops(file)
    try:
        body = _rename_types(body, file)
        untrusted = set(skops.get_untrusted_types(data=body)) - {*ALLOWED, *trusted}
    except ModelFileError:
        raise
    except Exception as error:
        raise _unreadable(file, error) from error
    if untrusted:
        names = sorted(untrusted)
        raise ModelFileError(
            f"`{file}` holds types that are not allowed: {', '.join(names)}. If you know who made "
            f"the file and trust these types, load it with `trusted={names!r}`."
        )
    try:
        objects = skops.loads(body, trusted=[*ALLOWED, *trusted])
        if not isinstance(objects, dict):
            raise TypeError("no named objects")
        for item in _inside(objects):
            _check_methods(item)
            _check_partial(item)
            _check_settings(item)
            check_trees(item)
    except Exception as error:
        raise _unreadable(file, error) from error
    return objects


def _unreadable(file: str, error: Exception) -> ModelFileError:
    return ModelFileError(
        f"`{file}` must hold objects that skops wrote ({type(error).__name__}: {error})."
    )


def _rename_types(body: bytes, file: str) -> bytes:
    """Return an uncompressed skops file in which types of older versions have their new names."""
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        if any(item.compress_type != zipfile.ZIP_STORED for item in archive.infolist()):
            raise ModelFileError(f"`{file}` must not be compressed.")
        old = {module for module, _ in RENAMED}
        schema = archive.read(SCHEMA)
        if not any(f'"{module}"'.encode() in schema for module in old):
            return body
        renamed = io.BytesIO()
        with zipfile.ZipFile(renamed, "w", zipfile.ZIP_STORED) as target:
            for name in archive.namelist():
                content = archive.read(name)
                if name == SCHEMA:
                    content = json.dumps(_with_new_names(json.loads(content))).encode()
                target.writestr(name, content)
    return renamed.getvalue()


def _with_new_names(node: Json) -> Json:
    """Return a node of a skops schema with the new names of types."""
    if isinstance(node, list):
        return [_with_new_names(item) for item in node]
    if not isinstance(node, dict):
        return node
    found = {key: _with_new_names(value) for key, value in node.items()}
    place = (found.get("__module__"), found.get("__class__"))
    if place in RENAMED:
        kind = RENAMED[place]
        found |= {"__module__": kind.__module__, "__class__": kind.__qualname__}
    return found


def _inside(root: object) -> Iterator[Any]:
    """Yield an object and everything that it holds."""
    seen: set[int] = set()
    waiting: list[Any] = [root]
    while waiting:
        item = waiting.pop()
        if id(item) in seen or isinstance(item, (str, bytes, int, float, type)):
            continue
        seen.add(id(item))
        yield item
        if isinstance(item, dict):
            waiting += item.values()
        elif isinstance(item, (list, tuple, set)):
            waiting += item
        elif isinstance(item, np.ndarray):
            waiting += item.ravel().tolist() if item.dtype == object else []
        else:
            waiting += getattr(item, "__dict__", {}).values()


def _check_partial(item: object) -> None:
    """Raise unless a partial function is the one in scikit-learn's boosting on histograms."""
    if isinstance(item, partial):
        plain = all(type(v) in (bool, str, list, type(None)) for v in item.keywords.values())
        if item.func is not check_array or item.args or not plain or vars(item):
            raise ValueError("a partial function")


def _check_settings(item: object) -> None:
    """Raise if a model would read or write files that its rows or its file name."""
    if getattr(item, "input", "content") != "content" and hasattr(item, "decode_error"):
        raise ValueError(f"{type(item).__name__} that reads files named in rows")
    if isinstance(getattr(item, "memory", None), str):
        raise ValueError(f"{type(item).__name__} that writes into a folder (`memory`)")


def _check_methods(item: object) -> None:
    """Raise if the file replaces a method of an object."""
    for name in getattr(item, "__dict__", {}):
        if callable(getattr(type(item), name, None)):
            raise ValueError(f"an object with its own {name}")
