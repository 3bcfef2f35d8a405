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
    └── TrainingWarning                                a method doesn't do what it is meant to
        └── InterruptedWarning                         training was cut short by the user
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path


class FairdialError(Exception):
    """Base class of every error that fairdial raises on purpose."""


class InvalidInputError(FairdialError, ValueError):
    """An argument is not what it must be; the message names it, what was got, what is allowed."""


class UnknownGroupError(InvalidInputError):
    """Rows of a group that the calibration rows never showed."""


class SmallGroupError(InvalidInputError):
    """A group with fewer counted rows than ``min_count``."""


class CannotCertifyError(FairdialError, ValueError):
    """The calibration rows don't support the promise that was asked for.

    Attributes
    ----------
    smallest_tolerance : float or None
        The smallest tolerance that these rows can certify at the same confidence.
    rows_needed : int or None
        About how many calibration rows, in the same proportions, the wish would need.
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
    """Training stopped being finite; the message names the rate to lower."""


class CheckpointError(FairdialError, ValueError):
    """A checkpoint can't be read, or belongs to another run."""


class ModelFileError(FairdialError, ValueError):
    """A saved model can't be read: a file is missing, altered or not what it must be."""


class DistributedError(FairdialError, RuntimeError):
    """Processes that train together lost each other: one has ended, failed or is stuck."""


class MissingExtraError(FairdialError, ImportError):
    """An optional dependency is not installed; the message names the install command."""


class FairdialWarning(UserWarning):
    """Base class of every warning that fairdial gives."""


class InfeasibleToleranceWarning(FairdialWarning):
    """No setting reaches the tolerance on the calibration rows; the smallest gap was taken."""


class BiasedScoresWarning(FairdialWarning):
    """Accuracy improves away from the unconstrained setting: the scores look miscalibrated."""


class TrainingWarning(FairdialWarning):
    """A method doesn't do what it is meant to: an inert auxiliary system, a collapsed dial."""


class InterruptedWarning(TrainingWarning):
    """Training was interrupted; the best weights so far are kept."""


def warn(message: str, category: type[FairdialWarning]) -> None:
    """Give a warning that points at the line of the user's code, however deep we are in ours."""
    here = str(Path(__file__).parent)
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(here):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
