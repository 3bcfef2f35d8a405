"""Saved models as the commands need them: the whole model, or its frontier alone."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairdial._validation import check_one_tolerance
from fairdial.cli.output import check_writable
from fairdial.core.criteria import Criterion
from fairdial.core.criteria import criterion as find_criterion
from fairdial.core.frontier import Frontier
from fairdial.core.problem import criterion_from_json, demand_from_json
from fairdial.errors import CannotCertifyError, InvalidInputError, ModelFileError
from fairdial.io.folder import check_target, read_folder
from fairdial.io.frontiers import FRONTIER, frontier_from_arrays
from fairdial.io.manifest import MANIFEST, OBJECTS, SIGNATURE, read_key
from fairdial.io.values import unpack

if TYPE_CHECKING:
    from fairdial.estimators.base import DialClassifier

SIGNIFICANT = 3  # digits of an estimated number of rows


@dataclass(frozen=True)
class Summary:
    """What a model's folder says without loading the scorer.

    Attributes
    ----------
    manifest : dict
        The manifest.
    hash : str
        The model's hash.
    tolerance : float
        The default tolerance.
    held_out : float or None
        The share of rows that training held out for calibration, if it did.
    frontier : Frontier or None
        The frontier, if the model is calibrated.
    """

    manifest: dict[str, Any]
    hash: str
    tolerance: float
    held_out: float | None
    frontier: Frontier | None


@contextlib.contextmanager
def reading_manifest() -> Iterator[None]:
    """Turn errors of missing or wrong entries into errors of the manifest."""
    try:
        yield
    except ModelFileError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        reason = str(error) if isinstance(error, InvalidInputError) else repr(error)
        raise ModelFileError(
            f"`{MANIFEST}` must describe a model, but doesn't: {reason}"
        ) from error


def read_summary(folder: Path, key: Path | None) -> Summary:
    """Read the manifest and the frontier; needs neither torch nor the scorer's libraries."""
    stored, frontier = read_folder(folder, key=key), None
    with reading_manifest():
        data = stored.manifest["frontier"]
        if data is not None:
            frontier = frontier_from_arrays(data, stored.files[FRONTIER], FRONTIER)
        parameters = stored.manifest["parameters"]
        tolerance = default_tolerance(parameters)
        held_out = held_out_share(parameters)
    return Summary(stored.manifest, stored.hash, tolerance, held_out, frontier)


def default_tolerance(parameters: Mapping[str, Any]) -> float:
    """Return the default tolerance: the stored one, or the one that the criterion declares."""
    tolerance = unpack(parameters["tolerance"])
    given = 0.0 if tolerance is None else check_one_tolerance(tolerance)
    return given or stored_criterion(parameters["criterion"]).declared or 0.0


def stored_criterion(packed: Any) -> Criterion:
    """Return the criterion of a manifest: a name, a list, a mapping, or one of your own."""

    def other(data: dict[str, Any]) -> Any:
        ((kind, content),) = data.items()
        if kind == "$mapping":
            return {unpack(key, other): unpack(value) for key, value in content}
        if kind == "$demand":
            return demand_from_json(content)
        if kind != "$criterion":
            raise ValueError(f"unknown criterion {kind}")
        return criterion_from_json(content)

    return find_criterion(unpack(packed, other))


def read_frontier(folder: Path, key: Path | None) -> tuple[Summary, Frontier]:
    """Read a model that must be calibrated."""
    summary = read_summary(folder, key)
    if summary.frontier is None:
        raise _uncalibrated()
    return summary, summary.frontier


def open_model(
    folder: Path, key: Path | None, trust: Sequence[str], *, calibrated: bool = True
) -> DialClassifier:
    """Load the whole model."""
    from fairdial.io.load import load_to_decide  # imports all methods: only where needed

    if (folder / OBJECTS).exists():  # other models don't need it
        from fairdial.io.objects import import_skops

        import_skops()
    model: DialClassifier = load_to_decide(folder, key=key, trusted=trust)
    if calibrated and not hasattr(model, "frontier_"):
        raise _uncalibrated()
    return model


def _uncalibrated() -> InvalidInputError:
    return InvalidInputError(
        "folder",
        "be a calibrated model",
        given="one that isn't calibrated",
        hint="Run fairdial calibrate first.",
    )


def held_out_share(parameters: Mapping[str, Any]) -> float | None:
    """Return the share of rows that an estimator with these parameters holds out, if it does."""
    share = parameters.get("calibration")
    if parameters.get("cv") is not None or parameters.get("prefit"):
        return None
    return share if isinstance(share, float) and 0 < share < 1 else None


@contextlib.contextmanager
def sizing_refusals(held_out: float | None) -> Iterator[None]:
    """Add to a refused certificate how large a table training would need."""
    try:
        yield
    except CannotCertifyError as error:
        if error.rows_needed is not None and held_out is not None:
            rows = error.rows_needed / held_out
            step = 10 ** max(len(str(math.ceil(rows))) - SIGNIFICANT, 0)
            error.add_note(
                f"To train again with {100 * held_out:.4g}% of the rows held out, that is a table "
                f"of about {math.ceil(rows / step) * step:,} rows."
            )
        raise


def check_model_path(out: Path, overwrite: bool, key: Path | None) -> None:
    """Refuse a path that a model can't be written to, or a bad key, before the work is done."""
    check_writable(out, overwrite)
    try:
        check_target(out, overwrite=overwrite)
    except InvalidInputError as error:
        raise InvalidInputError(
            "out", error.allowed, given=error.given, hint=error.hints
        ) from error
    read_key(key)


def check_stays_signed(folder: Path, key: Path | None) -> None:
    """Refuse to replace a signed model by an unsigned one."""
    if key is None and os.path.lexists(folder / SIGNATURE):
        raise InvalidInputError(
            "key_file", f"be given: {folder} is signed, and the new model would not be"
        )
