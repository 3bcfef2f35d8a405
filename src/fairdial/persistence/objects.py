"""Objects of scikit-learn through skops, with a fixed list of types that are allowed.

skops builds objects of named types from plain data; it never runs code that the file brings. Which
types it may build is decided here: those that skops knows to be harmless, those of
:data:`ALLOWED`, and those that the user names. Trees hold positions that scikit-learn follows
without looking; they are checked before anybody can (:mod:`fairdial.persistence.trees`).
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fairdial.errors import InvalidInputError, MissingExtraError, ModelFileError, say_install
from fairdial.persistence.trees import check_trees

ALLOWED = (  # besides what skops knows to be harmless: all public estimators of scikit-learn, ...
    "sklearn.tree._tree.Tree",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "fairdial.encoders.FrequentEncoder",
    "fairdial.encoders.TableEncoder",
    "fairdial.encoders._Categorical",
    "fairdial.encoders._Numeric",
    "functools.partial",  # of functions that are allowed themselves
    "numpy.dtype",
    "numpy.number",
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "sklearn.compose._column_transformer._RemainderColsList",
    "sklearn.compose._column_transformer.make_column_selector",
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
    "sklearn.utils._bunch.Bunch",
    "sklearn.utils._metadata_requests.MetadataRequest",
    "sklearn.utils._metadata_requests.MethodMetadataRequest",
    "sklearn.utils.validation.check_array",
)


def _skops(file: str) -> Any:
    try:
        import skops.io
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"`{file}` holds objects of scikit-learn, which need skops: {say_install('save')}."
        ) from error
    return skops.io


def write_objects(objects: dict[str, Any], file: str) -> tuple[bytes, list[str]]:
    """Objects by name as a file of skops, and the types that loading must be told to allow."""
    skops = _skops(file)
    try:
        body: bytes = skops.dumps(objects, compression=zipfile.ZIP_STORED)
        return body, sorted(set(skops.get_untrusted_types(data=body)) - set(ALLOWED))
    except Exception as error:
        kinds = ", ".join(sorted({type(value).__name__ for value in objects.values()}))
        raise InvalidInputError(
            f"`estimator` (and `encoder`) must be what skops can save, got {kinds}: {error}"
        ) from error


def read_objects(body: bytes, file: str, trusted: Sequence[str] = ()) -> dict[str, Any]:
    """The objects that :func:`write_objects` wrote; types that aren't allowed are refused."""
    skops = _skops(file)
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            if any(item.compress_type != zipfile.ZIP_STORED for item in archive.infolist()):
                raise ModelFileError(f"`{file}` must not be compressed, got entries that are.")
        strangers = set(skops.get_untrusted_types(data=body)) - set(ALLOWED) - set(trusted)
    except ModelFileError:
        raise
    except Exception as error:
        raise _unreadable(file, error) from error
    if strangers:
        names = sorted(strangers)
        raise ModelFileError(
            f"`{file}` holds types that are not allowed: {', '.join(names)}. If you know who made "
            f"the file and trust these types, load it with trusted={names!r}."
        )
    try:
        objects = skops.loads(body, trusted=[*ALLOWED, *trusted])
        if not isinstance(objects, dict):
            raise TypeError("no objects by name")
        for item in _inside(objects):
            _check_methods(item)
            check_trees(item)
    except Exception as error:
        raise _unreadable(file, error) from error
    return objects


def _unreadable(file: str, error: Exception) -> ModelFileError:
    return ModelFileError(
        f"`{file}` must hold objects that skops wrote, got something else "
        f"({type(error).__name__}: {error})."
    )


def _inside(root: Any) -> Iterator[Any]:
    """Everything that an object holds, itself first."""
    seen: set[int] = set()
    waiting = [root]
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


def _check_methods(item: Any) -> None:
    """What an object does is its type's to say: a file can't put something else in its place."""
    for name in getattr(item, "__dict__", {}):
        if callable(getattr(type(item), name, None)):
            raise ValueError(f"an object with a {name} of its own")
