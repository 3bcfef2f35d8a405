"""Everything that fairdial raises or warns about.

::

    FairdialError                       (Exception)
    ├── InvalidInputError               (ValueError)   an argument is not what it must be
    │   ├── UnknownGroupError                          a group that calibration never saw
    │   └── SmallGroupError                            a group with too few counted rows
    ├── CannotCertifyError              (ValueError)   no such promise can be made from these rows
    ├── DivergedError                   (ArithmeticError)  training stopped being finite
    ├── CheckpointError                 (ValueError)   a checkpoint can't be gone on from
    ├── ModelFileError                  (ValueError)   a saved model can't be read
    ├── DistributedError                (RuntimeError) the processes of a training lost each other
    └── MissingExtraError               (ImportError)  an optional dependency is not installed

    FairdialWarning                     (UserWarning)
    ├── InfeasibleToleranceWarning                     no setting reaches the tolerance
    ├── BiasedScoresWarning                            the scores look far from calibrated
    ├── SeenRowsWarning                                the classifier may know these rows
    └── TrainingWarning                                a method doesn't do what it is meant to
        └── InterruptedWarning                         training was cut short by the user
"""

from __future__ import annotations

import sys
import warnings
from importlib.util import find_spec
from pathlib import Path


class FairdialError(Exception):
    """Base class of every error that fairdial raises on purpose.

    Examples
    --------
    >>> from fairdial import FairdialError, sweep
    >>> try:
    ...     sweep([0.1, float("nan")], ["a", "b"])
    ... except FairdialError as error:
    ...     print(type(error).__name__)
    InvalidInputError
    """


class InvalidInputError(FairdialError, ValueError):
    """An argument is not what it must be; the message names it, what was got, what is allowed.

    Examples
    --------
    >>> import fairdial
    >>> fairdial.criterion("parity")
    Traceback (most recent call last):
    ...
    fairdial.errors.InvalidInputError: `criterion` must be one of demographic_parity, ...
    """


class UnknownGroupError(InvalidInputError):
    """Rows of a group that the calibration rows never showed.

    Examples
    --------
    >>> from fairdial import sweep
    >>> frontier = sweep([-1.0, 1.0, 2.0], ["a", "a", "b"], min_count=1)
    >>> frontier.decide([0.5], ["c"], tolerance=0.1)
    Traceback (most recent call last):
    ...
    fairdial.errors.UnknownGroupError: ...
    """


class SmallGroupError(InvalidInputError):
    """A group with fewer counted rows than ``min_count``.

    Examples
    --------
    >>> from fairdial import sweep
    >>> sweep([-1.0, 1.0, 2.0], ["a", "a", "b"])
    Traceback (most recent call last):
    ...
    fairdial.errors.SmallGroupError: ...
    """


class CannotCertifyError(FairdialError, ValueError):
    """The calibration rows don't support the promise that was asked for.

    Attributes
    ----------
    smallest_tolerance : float or None
        The smallest tolerance that these rows can certify at the same confidence.
    rows_needed : int or None
        About how many calibration rows, in the same proportions, the wish would need.

    Examples
    --------
    >>> from fairdial import CannotCertifyError, sweep
    >>> from fairdial.datasets import make_gaussian
    >>> rows = make_gaussian(2_000, random_state=0)
    >>> try:
    ...     sweep(rows.logits, rows.groups, rows.y).at(0.01, confidence=0.95)
    ... except CannotCertifyError as refusal:
    ...     print(refusal.smallest_tolerance > 0.01, refusal.rows_needed > 2_000)
    True True
    """

    def __init__(
        self,
        message: str,
        *,
        smallest_tolerance: float | None = None,
        rows_needed: int | None = None,
    ) -> None:
        super().__init__(message)
        self.smallest_tolerance = smallest_tolerance
        self.rows_needed = rows_needed


class DivergedError(FairdialError, ArithmeticError):
    """Training stopped being finite; the message names the rate to lower.

    Examples
    --------
    >>> from fairdial import DivergedError, FairdialError
    >>> issubclass(DivergedError, (FairdialError, ArithmeticError))
    True
    """


class CheckpointError(FairdialError, ValueError):
    """A checkpoint can't be read, or belongs to another run.

    Examples
    --------
    >>> from fairdial import CheckpointError, FairdialError
    >>> issubclass(CheckpointError, (FairdialError, ValueError))
    True
    """


class ModelFileError(FairdialError, ValueError):
    """A saved model can't be read: a file is missing, altered or not what it must be.

    Examples
    --------
    >>> import tempfile
    >>> import fairdial
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fairdial.load(folder)
    Traceback (most recent call last):
    ...
    fairdial.errors.ModelFileError: ...
    """


class DistributedError(FairdialError, RuntimeError):
    """Processes that train together lost each other: one has ended, failed or is stuck.

    Examples
    --------
    >>> from fairdial import DistributedError, FairdialError
    >>> issubclass(DistributedError, (FairdialError, RuntimeError))
    True
    """


class MissingExtraError(FairdialError, ImportError):
    """An optional dependency is not installed; the message names the install command.

    Examples
    --------
    >>> from fairdial import MissingExtraError
    >>> issubclass(MissingExtraError, ImportError)
    True
    """


def say_install(extra: str) -> str:
    """How an extra is installed: the end of a message, without its full stop.

    Examples
    --------
    >>> from fairdial.errors import say_install
    >>> say_install("torch")
    "pip install '.[torch]' -c constraints.txt in fairdial's folder"
    """
    return f"pip install '.[{extra}]' -c constraints.txt in fairdial's folder"


def need_extra(package: str, what: str, extra: str, instead: str = "") -> None:
    """Raise where a package isn't installed, without importing it: before the work is begun.

    Examples
    --------
    >>> from fairdial.errors import need_extra
    >>> need_extra("numpy", "adding", "torch")
    """
    try:
        found = find_spec(package) is not None
    except (ImportError, ValueError):
        found = False
    if not found:
        raise MissingExtraError(f"{what} needs {package}: {say_install(extra)}{instead}.")


class FairdialWarning(UserWarning):
    """Base class of every warning that fairdial gives.

    Examples
    --------
    >>> import warnings
    >>> from fairdial import FairdialWarning
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", FairdialWarning)  # none of fairdial's is shown here
    """


class InfeasibleToleranceWarning(FairdialWarning):
    """No setting reaches the tolerance on the calibration rows; the smallest gap was taken.

    Examples
    --------
    >>> import warnings
    >>> from fairdial import InfeasibleToleranceWarning, sweep
    >>> frontier = sweep([-1.0, 1.0, 2.0], ["a", "a", "b"], min_count=1)
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", InfeasibleToleranceWarning)
    ...     frontier.at(0.0).feasible
    False
    """


class BiasedScoresWarning(FairdialWarning):
    """Accuracy improves away from the unconstrained setting: the scores look miscalibrated.

    Examples
    --------
    >>> from fairdial import BiasedScoresWarning, FairdialWarning
    >>> issubclass(BiasedScoresWarning, FairdialWarning)
    True
    """


class SeenRowsWarning(FairdialWarning):
    """Calibration rows that the classifier seems to have been trained on, or may have been.

    Examples
    --------
    >>> import warnings
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from fairdial import FairBayes, SeenRowsWarning
    >>> from fairdial.datasets import make_gaussian
    >>> rows = make_gaussian(2_000, random_state=0)
    >>> memory = KNeighborsClassifier(1).fit(rows.X, rows.y)
    >>> with warnings.catch_warnings(record=True) as given:
    ...     warnings.simplefilter("always")
    ...     dial = FairBayes(memory, prefit=True)
    ...     dial = dial.calibrate(rows.X, rows.y, sensitive_features=rows.groups)
    >>> [warning.category.__name__ for warning in given]
    ['SeenRowsWarning']
    """


class TrainingWarning(FairdialWarning):
    """A method doesn't do what it is meant to: an inert auxiliary system, a collapsed dial.

    Also: a candidate of :class:`~fairdial.AutoDial` that failed, so that others were compared.

    Examples
    --------
    >>> import warnings
    >>> from fairdial import TrainingWarning
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", TrainingWarning)  # in a script: stop where one is given
    """


class InterruptedWarning(TrainingWarning):
    """Training was interrupted; the best weights so far are kept.

    Examples
    --------
    >>> from fairdial import InterruptedWarning, TrainingWarning
    >>> issubclass(InterruptedWarning, TrainingWarning)
    True
    """


def warn(message: str, category: type[FairdialWarning]) -> None:
    """Give a warning that points at the line of the user's code, however deep we are in ours."""
    here = str(Path(__file__).parent)
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(here):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
