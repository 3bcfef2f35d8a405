"""Model folders as the commands need them: the whole model, or its dial alone."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairdial._validation import check_one
from fairdial.cli.tables import check_free
from fairdial.errors import CannotCertifyError, InvalidInputError, MissingExtraError, ModelFileError
from fairdial.frontier import Frontier
from fairdial.persistence.folder import check_target, read_folder
from fairdial.persistence.frontiers import FRONTIER, frontier_from_arrays
from fairdial.persistence.manifest import MANIFEST, SIGNATURE, read_key
from fairdial.persistence.quick import import_skops
from fairdial.persistence.values import unpack

DIGITS = 3  # of a number of rows that is known about
UNCALIBRATED = "MODEL must be calibrated, got one that isn't: fairdial calibrate finds its dial."


@dataclass(frozen=True)
class Told:
    """What a folder tells without its scorer being loaded."""

    manifest: dict[str, Any]
    hash: str
    resting: float  # the tolerance at which the dial rests
    share: Any  # of the rows, that was held out from training
    known: Frontier | None

    @property
    def frontier(self) -> Frontier:
        """The dial, or an error where there is none."""
        if self.known is None:
            raise InvalidInputError(UNCALIBRATED)
        return self.known


@contextlib.contextmanager
def reading_manifest() -> Iterator[None]:
    """What a manifest doesn't tell, or tells otherwise, is the file's fault."""
    try:
        yield
    except ModelFileError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        told = str(error) if isinstance(error, InvalidInputError) else repr(error)
        raise ModelFileError(
            f"`{MANIFEST}` must tell of a model, got something else ({told})."
        ) from error


def read_told(folder: Path, key: Path | None) -> Told:
    """What a model is, and its dial; neither torch nor the scorer's libraries are needed."""
    stored, frontier = read_folder(folder, key=key), None
    with reading_manifest():
        told = stored.manifest["frontier"]
        if told is not None:
            frontier = frontier_from_arrays(told, stored.files[FRONTIER], FRONTIER)
        parameters = stored.manifest["parameters"]
        resting = check_one(unpack(parameters["tolerance"]))
        share = _held_out(parameters)
    return Told(stored.manifest, stored.hash, resting, share, frontier)


@contextlib.contextmanager
def telling_table(share: Any, *, asked: bool) -> Iterator[None]:
    """A refusal that says how many calibration rows would do names the whole table, too.

    ``share`` is that of the rows which are held out from a training; None: it isn't known.
    ``asked`` says whether --tolerance was given; else the refusal is about where the dial rests.
    """
    try:
        yield
    except CannotCertifyError as error:
        rows, told = error.rows_needed, str(error)
        if not asked:
            told = told.replace("`tolerance`=", "Where the dial rests, tolerance ", 1)
        if rows is not None and isinstance(share, float) and 0 < share < 1:
            whole = f"a table of about {_about(rows / share):,} with {100 * share:.4g}% held out"
            told = f"{told.removesuffix('.')} (when training: {whole})."
        raise CannotCertifyError(
            told,
            smallest_tolerance=error.smallest_tolerance,
            rows_needed=rows,
        ) from error


def share_of(model: Any) -> Any:
    """The share of the rows that was held out from a model's training, where one was."""
    return _held_out(model.get_params(deep=False))


def _held_out(parameters: Mapping[str, Any]) -> Any:
    """The share of the rows that an estimator with these parameters holds out, if it does."""
    trained = parameters.get("cv") is None and not parameters.get("prefit")
    return parameters.get("calibration") if trained else None


def _about(number: float) -> int:
    """A number of rows, up to the next one with three digits."""
    step = 10 ** max(len(str(math.ceil(number))) - DIGITS, 0)
    return int(math.ceil(number / step) * step)


def open_model(
    folder: Path, key: Path | None, trust: Sequence[str], *, calibrated: bool = True
) -> Any:
    """The whole model."""
    from fairdial.methods.loading import load  # of all methods: only where it is needed

    with contextlib.suppress(MissingExtraError):  # the model may not need it
        import_skops()
    model = load(folder, key=key, trusted=trust)
    if calibrated and not hasattr(model, "frontier_"):
        raise InvalidInputError(UNCALIBRATED)
    return model


def check_place(out: Path, overwrite: bool, key: Path | None) -> None:
    """Whether a model can be written there, and signed, before the work is done."""
    check_free(out, overwrite)
    try:
        check_target(out, overwrite=overwrite)
    except InvalidInputError as error:
        raise InvalidInputError(str(error).replace("`folder`", "--out")) from error
    read_key(key)


def refuse_unsigned(folder: Path, key: Path | None) -> None:
    """What is made of a signed model is signed, too."""
    if key is None and os.path.lexists(folder / SIGNATURE):
        raise InvalidInputError(
            f"--key-file must be given: {folder} is signed, and what is made of it would lose the "
            "signature."
        )
