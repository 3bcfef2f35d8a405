"""Errors and warnings.

::

    FairdialError                       (Exception)
    ├── InvalidInputError               (ValueError)       an argument is invalid
    │   ├── UnknownGroupError                              a group without calibration rows
    │   └── SmallGroupError                                a group with too few eligible rows
    ├── CannotCertifyError              (ValueError)       the rows don't support the certificate
    ├── DivergedError                   (ArithmeticError)  training diverged
    ├── CheckpointError                 (ValueError)       a checkpoint can't be resumed
    ├── ModelFileError                  (ValueError)       a saved model can't be read
    ├── DistributedError                (RuntimeError)     processes lost contact in training
    └── MissingExtraError               (ImportError)      an optional dependency is missing

    FairdialWarning                     (UserWarning)
    ├── InfeasibleToleranceWarning                         no operating point reaches the tolerance
    ├── BiasedScoresWarning                                the scores look miscalibrated
    ├── SeenRowsWarning                                    calibration rows were seen in training
    └── TrainingWarning                                    training didn't work as intended
        └── InterruptedWarning                             the user interrupted training
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Hashable, Iterable
from importlib.util import find_spec
from pathlib import Path

Hints = tuple[str, ...]
QUOTED = re.compile(r"`(\w+)(?:=([^`]*))?`")


def render(text: str, name: Callable[[str, str], str | None]) -> str:
    """Return a message with the arguments in backticks renamed; unknown ones stay as they are.

    Examples
    --------
    >>> from fairdial.errors import render
    >>> options = {"random_state": "--seed"}
    >>> render("`random_state` must be at least 0.", lambda argument, value: options.get(argument))
    '--seed must be at least 0.'
    """
    return QUOTED.sub(lambda found: name(found[1], found[2] or "") or found[0], text)


class FairdialError(Exception):
    """Base class of the errors that fairdial raises.

    Examples
    --------
    >>> from fairdial import FairdialError, sweep
    >>> try:
    ...     sweep([0.1, float("nan")], ["a", "b"])
    ... except FairdialError as error:
    ...     print(type(error).__name__)
    InvalidInputError
    """

    hints: Hints = ()

    def __reduce__(self) -> tuple[object, ...]:  # by default, __init__ would get the message only
        return _restore, (type(self), self.args, vars(self))

    def render(self, name: Callable[[str, str], str | None]) -> str:
        """Return the message with other names for the arguments, such as command-line options.

        ``name(argument, value)`` returns the replacement of `` `argument` `` (value is "") or
        `` `argument=value` ``. If it returns None, hints that mention the argument are left out,
        and other text keeps the name.
        """
        text = str(self)
        for hint in self.hints:
            if any(name(*found) is None for found in QUOTED.findall(hint)):
                text = text.replace(f" {hint}", "")
        return render(text, name)


def _restore(
    kind: type[FairdialError], args: tuple[object, ...], state: dict[str, object]
) -> FairdialError:
    """Return an error that was pickled, such as one of another process."""
    error = kind.__new__(kind, *args)
    vars(error).update(state)
    if isinstance(error, ImportError):
        error.msg = str(error)  # set by __init__, and not in vars()
    return error


class InvalidInputError(FairdialError, ValueError):
    """An argument is invalid.

    The message has the form "`argument` must <allowed>, got <given>. <hint>". Arguments, and
    arguments with a value, are in backticks, so that the command line can replace them by its
    options (``FairdialError.render``).

    Attributes
    ----------
    argument : str
        Name of the argument.
    allowed : str
        What is allowed; continues "must", such as "be a number in [0, 1]".
    given : str
        What was given; may be empty.
    hints : tuple of str
        Sentences that say how to fix it.

    Examples
    --------
    >>> import fairdial
    >>> fairdial.InvalidInputError("tolerance", "be at most 1", given="2.0")
    InvalidInputError('`tolerance` must be at most 1, got 2.0.')
    >>> try:
    ...     fairdial.criterion("parity")
    ... except fairdial.InvalidInputError as error:
    ...     error.argument, error.given
    ('criterion', "'parity'")
    """

    def __init__(
        self, argument: str, allowed: str, *, given: object = "", hint: str | Hints = ()
    ) -> None:
        self.argument, self.allowed, self.given = argument, allowed, str(given)
        hints = (hint,) if isinstance(hint, str) else hint
        self.hints = tuple(text.strip() for text in hints if text)
        got = f", got {self.given}" if self.given else ""
        text = f"`{argument}` must {allowed}{got}."
        super().__init__(" ".join((text, *self.hints)))


class _GroupError(InvalidInputError):
    """Some groups are invalid; ``groups`` are their names."""

    def __init__(
        self,
        argument: str,
        allowed: str,
        *,
        given: object = "",
        hint: str | Hints = (),
        groups: Iterable[Hashable] = (),
    ) -> None:
        super().__init__(argument, allowed, given=given, hint=hint)
        self.groups = tuple(groups)


class UnknownGroupError(_GroupError):
    """Some rows belong to groups that have no calibration rows.

    Attributes
    ----------
    groups : tuple
        Names of the unknown groups.

    Examples
    --------
    >>> from fairdial import UnknownGroupError, sweep
    >>> frontier = sweep([-1.0, 1.0, 2.0], ["a", "a", "b"], min_count=1)
    >>> try:
    ...     frontier.decide([0.5], ["c"], tolerance=0.1)
    ... except UnknownGroupError as error:
    ...     error.groups
    ('c',)
    """


class SmallGroupError(_GroupError):
    """Some groups have fewer eligible rows than ``min_count``.

    Attributes
    ----------
    groups : tuple
        Names of the small groups.

    Examples
    --------
    >>> from fairdial import SmallGroupError, sweep
    >>> try:
    ...     sweep([-1.0, 1.0, 2.0], ["a", "a", "b"], min_count=2)
    ... except SmallGroupError as error:
    ...     error.groups
    ('b',)
    """


class CannotCertifyError(FairdialError, ValueError):
    """The calibration rows don't support the certificate that was asked for.

    Attributes
    ----------
    smallest_tolerance : float or None
        The smallest tolerance that these rows can certify at the same confidence.
    rows_needed : int or None
        About how many calibration rows the requested tolerance needs, in the same proportions.
    group : hashable
        Name of the group that is too small.
    group_rows : int or None
        Its eligible calibration rows.
    group_rows_needed : int or None
        About how many that group needs, and every other group that has fewer; None if no number is
        enough.

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
        group: Hashable = None,
        group_rows: int | None = None,
        group_rows_needed: int | None = None,
    ) -> None:
        super().__init__(message)
        self.smallest_tolerance = smallest_tolerance
        self.rows_needed = rows_needed
        self.group, self.group_rows = group, group_rows
        self.group_rows_needed = group_rows_needed

    @property
    def enough(self) -> str | None:
        """What would be enough for the requested tolerance, in words; None if nothing would."""
        return describe_enough(self.rows_needed, self.group_rows_needed)


def describe_enough(rows: int | None, group_rows: int | None) -> str | None:
    """Return how many calibration rows are enough, of all groups or of small ones, in words."""
    if rows is None:
        return None
    text = f"about {rows:,} rows like these are enough"
    return text if group_rows is None else f"{text}, or {group_rows:,} in each group that has fewer"


class DivergedError(FairdialError, ArithmeticError):
    """Training diverged; the message names the learning rate to lower.

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
    """A saved model can't be read: a file is missing, altered or invalid.

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
    """A process of a distributed training ended, failed or hung.

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


def install_command(extra: str) -> str:
    """Return the command that installs an extra.

    Examples
    --------
    >>> from fairdial.errors import install_command
    >>> install_command("torch")
    "pip install '.[torch]' -c constraints.txt in fairdial's folder"
    """
    return f"pip install '.[{extra}]' -c constraints.txt in fairdial's folder"


def require_extra(package: str, what: str, extra: str, instead: str = "") -> None:
    """Raise if a package isn't installed, without importing it.

    Examples
    --------
    >>> from fairdial.errors import require_extra
    >>> require_extra("numpy", "adding", "torch")
    """
    try:
        found = find_spec(package) is not None
    except (ImportError, ValueError):
        found = False
    if not found:
        raise MissingExtraError(f"{what} needs {package}: {install_command(extra)}{instead}.")


def require_torch() -> None:
    """Raise where torch's extra isn't installed; then ``fairdial.nn`` can be imported.

    Examples
    --------
    >>> from fairdial.errors import require_torch
    >>> require_torch()
    """
    instead = " (or give FairBayes a scikit-learn estimator)"
    for package in ("torch", "safetensors"):
        require_extra(package, "a network", "torch", instead)


class FairdialWarning(UserWarning):
    """Base class of fairdial's warnings.

    Examples
    --------
    >>> import warnings
    >>> from fairdial import FairdialWarning
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", FairdialWarning)
    """


class InfeasibleToleranceWarning(FairdialWarning):
    """No operating point reaches the tolerance on the calibration rows; the smallest gap is used.

    Examples
    --------
    >>> import warnings
    >>> from fairdial import InfeasibleToleranceWarning, measure
    >>> frontier = measure([[-1.0, 1.0, 2.0]], ["a", "a", "b"], min_count=1)
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", InfeasibleToleranceWarning)
    ...     frontier.at(0.0).feasible
    False
    """


class ConstantDecisionsWarning(FairdialWarning):
    """A tolerance is reached only by the same decision for everybody.

    Examples
    --------
    >>> import warnings
    >>> from fairdial import ConstantDecisionsWarning, sweep
    >>> frontier = sweep([-1.0, 1.0, 2.0], ["a", "a", "b"], min_count=1, nested=False)
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", ConstantDecisionsWarning)
    ...     frontier.at(0.0).selection_rate
    array([1., 1.])
    """


class BiasedScoresWarning(FairdialWarning):
    """The scores look miscalibrated, so the dial's thresholds are off.

    In some group, the mean of the predicted probabilities differs from the share of positive
    labels among the calibration rows by more than chance explains.

    Examples
    --------
    >>> from fairdial import BiasedScoresWarning, FairdialWarning
    >>> issubclass(BiasedScoresWarning, FairdialWarning)
    True
    """


class SeenRowsWarning(FairdialWarning):
    """The classifier may have been trained on the calibration rows.

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
    """Training didn't work as intended.

    Examples are an auxiliary system that has no effect, a dial that collapsed, and a candidate of
    :class:`~fairdial.AutoDial` that failed.

    Examples
    --------
    >>> import warnings
    >>> from fairdial import TrainingWarning
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", TrainingWarning)  # stop at the first one
    """


class InterruptedWarning(TrainingWarning):
    """Training was interrupted; the best weights so far are kept.

    Examples
    --------
    >>> from fairdial import InterruptedWarning, TrainingWarning
    >>> issubclass(InterruptedWarning, TrainingWarning)
    True
    """


def renamed(old: str, new: str) -> property:
    """Return a property for a retired name, which warns and returns the attribute ``new``.

    Examples
    --------
    >>> import warnings
    >>> from fairdial.errors import renamed
    >>> class Box:
    ...     width, breadth = 3, renamed("breadth", "width")
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", DeprecationWarning)
    ...     Box().breadth
    3
    """

    def get(self: object) -> object:
        message = f"`{old}` is deprecated; use `{new}`"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return getattr(self, new)

    return property(get, doc=f"Deprecated: use ``{new}``.")


def warn(message: str, category: type[FairdialWarning]) -> None:
    """Warn with the location of the first caller outside the package."""
    here = str(Path(__file__).parent)
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(here):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
