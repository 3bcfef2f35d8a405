"""Everything before a server listens: tokens, the model, and the dial in the audit log."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fairdial.errors import (
    CannotCertifyError,
    FairdialWarning,
    InvalidInputError,
    warn,
)
from fairdial.serve.audit import AUDIT_SUFFIX, AuditLog, has_entries, is_database
from fairdial.serve.entries import SERVER, AuditError, DialMovedError, Entry

if TYPE_CHECKING:
    from fairdial.core.frontier import Frontier
    from fairdial.core.point import Point
    from fairdial.estimators.base import DialClassifier
    from fairdial.serve.guard import App

OBSERVER = "FAIRDIAL_OBSERVE_TOKEN"  # environment variable of the token for observations only
SHORTEST_TOKEN = 16
ATTEMPTS = 20  # to record the start while other servers start
OBSERVED_SUFFIX = ".observed"
LEVEL = 0.95  # confidence of the page's statements about new rows


@dataclass(frozen=True)
class Settings:
    """What a process of the server needs to know."""

    model: str
    hash: str
    key: str | None
    audit: str | None
    observed: str
    read_only: bool
    tolerance: float
    default_tolerance: float  # of the model
    confidence: float | None
    token_env: str
    open_observe: bool
    hosts: tuple[str, ...] | None
    name: str
    people: Mapping[str, str] = field(default_factory=dict)
    labels: tuple[str, str] | None = None
    trusted: tuple[str, ...] = ()


def prepare(
    model: str | os.PathLike[str],
    *,
    audit: str | os.PathLike[str] | None,
    observed: str | os.PathLike[str] | None = None,
    read_only: bool,
    tolerance: float | None,
    confidence: float | None,
    token_env: str,
    open_observe: bool,
    key: str | os.PathLike[str] | None,
    hosts: tuple[str, ...] | None,
    scratch: str | os.PathLike[str],
    name: str | None = None,
    people: Mapping[str, str] | None = None,
    labels: tuple[str, str] | None = None,
    trusted: tuple[str, ...] = (),
) -> Settings:
    """Check everything, and record the dial's tolerance; arguments are as in ``run.serve``."""
    from fairdial._validation import check_confidence, check_one_tolerance
    from fairdial.io.folder import read_folder
    from fairdial.io.frontiers import FRONTIER, frontier_from_arrays
    from fairdial.io.values import unpack
    from fairdial.serve.deciding import refuse_unserved
    from fairdial.serve.page_data import match_people

    find_tokens(token_env, os.environ, needed=not read_only)
    if confidence is not None:
        check_confidence(confidence)
    folder = Path(model).absolute()
    stored = read_folder(folder, key=key)
    data = stored.manifest["frontier"]
    if data is None:
        raise InvalidInputError("model", "be calibrated", given="one that isn't")
    frontier = frontier_from_arrays(data, stored.files[FRONTIER], FRONTIER)
    refuse_unserved(frontier)
    match_people(frontier.groups, people or {})
    declared = frontier.criterion.declared  # as in DialClassifier.default_tolerance
    default = unpack(stored.manifest["parameters"]["tolerance"]) or declared or 0.0
    start = check_one_tolerance(default if tolerance is None else tolerance)
    place, counts = _places(folder, audit, observed, scratch, read_only=read_only)
    settings = Settings(
        model=str(folder),
        hash=stored.hash,
        key=None if key is None else str(Path(key).absolute()),
        audit=place,
        observed=counts,
        read_only=read_only,
        tolerance=start,
        default_tolerance=check_one_tolerance(default),
        confidence=confidence,
        token_env=token_env,
        open_observe=open_observe,
        hosts=hosts,
        name=name or folder.name,
        people=people or {},
        labels=labels,
        trusted=trusted,
    )
    if place is None or not has_entries(place):
        _find_point(frontier, start, confidence)  # before a log is created
    load_model(settings)
    if place is not None:
        _record_start(settings, frontier, requested=tolerance is not None)
    return settings


def _places(
    folder: Path,
    audit: str | os.PathLike[str] | None,
    observed: str | os.PathLike[str] | None,
    scratch: str | os.PathLike[str],
    *,
    read_only: bool,
) -> tuple[str | None, str]:
    """Return where the audit log is, if there is one, and the file of the observations."""
    beside = f"{folder}{AUDIT_SUFFIX}"  # observations stay on this host if the log doesn't
    place: str | None
    if audit is not None and is_database(audit):
        place = str(audit)
    else:
        place = beside = str(Path(audit or beside).absolute())
    if read_only and audit is None and not Path(beside).is_file():
        place = None
    if read_only:
        return place, str(Path(scratch, "observed.sqlite"))
    return place, str(Path(observed or f"{beside}{OBSERVED_SUFFIX}").absolute())


def load_model(settings: Settings) -> DialClassifier:
    """Load the whole model."""
    from fairdial.io.load import load_to_decide
    from fairdial.io.manifest import OBJECTS
    from fairdial.io.objects import import_skops

    if Path(settings.model, OBJECTS).exists():  # other models don't need it
        import_skops()
    model: DialClassifier = load_to_decide(
        settings.model, key=settings.key, trusted=settings.trusted
    )
    if model.model_hash_ != settings.hash:
        raise InvalidInputError(
            "model",
            "stay the same while it is served",
            given="a folder that was replaced",
            hint="Restart the server.",
        )
    return model


def make_app(settings: Settings) -> App:
    """Return the application of one process."""
    from fairdial.serve.app import create_app
    from fairdial.serve.deciding import Decider
    from fairdial.serve.observations import Observations
    from fairdial.serve.page_data import page_data
    from fairdial.serve.service import Service

    model = load_model(settings)
    decider = Decider(model)
    log = None
    if settings.audit is not None:
        log = AuditLog(settings.audit, write=not settings.read_only)
    service = Service(
        decider,
        model=settings.hash,
        log=log,
        observations=Observations(
            settings.observed, model=settings.hash, n_groups=len(decider.groups)
        ),
        tolerance=settings.tolerance,
        confidence=settings.confidence,
    )
    token, observer = find_tokens(settings.token_env, os.environ, needed=not settings.read_only)
    return create_app(
        service,
        document=lambda: page_data(
            model,
            name=settings.name,
            people=settings.people,
            labels=settings.labels,
            tolerance=settings.tolerance,
            confidence=LEVEL if settings.confidence is None else settings.confidence,
        ),
        token=token,
        observer=observer,
        open_observe=settings.open_observe,
        hosts=settings.hosts,
    )


# ---- tokens ------------------------------------------------------------------------------------


def find_tokens(
    name: str, environment: Mapping[str, str], *, needed: bool
) -> tuple[str | None, str | None]:
    """Return the token that changes the dial, and the one for observations only, if set."""
    token = find_token(name, environment) if needed or environment.get(name) else None
    other = find_token(OBSERVER, environment) if environment.get(OBSERVER) else None
    return token, other


def find_token(name: str, environment: Mapping[str, str]) -> str:
    """Return the token in an environment variable."""
    token = environment.get(name, "")
    if not token:
        raise InvalidInputError(
            "token_env",
            "name an environment variable that holds the token for changing the dial",
            given=f"{name}, which is not set",
            hint=(
                "Set it, for example to the output of openssl rand -hex 32.",
                "Or start with `read_only=True`.",
            ),
        )
    if len(token) < SHORTEST_TOKEN or not token.isascii() or token != token.strip():
        raise InvalidInputError(
            "token_env",
            f"name an environment variable that holds at least {SHORTEST_TOKEN} ASCII characters "
            "without surrounding spaces",
            given=f"{name}, whose value is different",
        )
    return token


# ---- the dial ----------------------------------------------------------------------------------


def _record_start(settings: Settings, frontier: Frontier, *, requested: bool) -> None:
    """Record the dial's tolerance if the log is empty or this start changes something.

    ``requested`` says whether the tolerance was given for this start. It is used only if nobody
    but the server has changed the dial.
    """
    assert settings.audit is not None
    writable = not settings.read_only
    log = AuditLog(settings.audit, create=writable, write=writable)
    try:
        altered = log.altered()
        if altered is not None:
            raise InvalidInputError(
                "audit",
                "be unchanged since the server wrote it",
                given=f"{log.store.place!r}, whose entry {altered} was altered",
                hint="Keep that log, and start with another `audit`.",
            )
        for _ in range(ATTEMPTS):
            with contextlib.suppress(DialMovedError):  # by another server that starts
                _record_once(log, settings, frontier, requested=requested)
                return
        raise AuditError("the dial changes too often to start")
    finally:
        log.close()


def _record_once(log: AuditLog, settings: Settings, frontier: Frontier, *, requested: bool) -> None:
    """Record the dial's tolerance; raise DialMovedError if the dial changes meanwhile."""
    last, moved = log.last(), log.moved()
    tolerance, confidence = settings.tolerance, settings.confidence
    if last is not None:
        if moved or not requested or settings.read_only:
            tolerance = last.tolerance
            if requested and tolerance != settings.tolerance:
                _warn_unused(settings, last)
        levels = [c for c in (last.confidence, settings.confidence) if c is not None]
        confidence = max(levels, default=None)
    point = _find_point(frontier, tolerance, confidence, moved=moved)
    reason = _what_changed(last, settings.hash, tolerance, confidence)
    if log.writable and reason is not None:
        log.append(
            tolerance=tolerance,
            confidence=confidence,
            gap=point.gap,
            who=SERVER,
            reason=reason,
            model=settings.hash,
            seen=last.version if last is not None else 0,
        )


def _warn_unused(settings: Settings, last: Entry) -> None:
    how = "To change it, use the server's page or PUT /v1/dial"
    if settings.read_only:
        how += " of a server that isn't read-only"
    warn(
        f"`tolerance={settings.tolerance:g}` is ignored: the audit log sets the tolerance to "
        f"{last.tolerance:g} (version {last.version}). {how}.",
        FairdialWarning,
    )


def _what_changed(
    last: Entry | None, model: str, tolerance: float, confidence: float | None
) -> str | None:
    """Return the reason of the entry that records a start, or None if it changes nothing."""
    if last is None:
        return "first start"
    found = [] if last.model == model else ["the model changed"]
    if found and last.tolerance == tolerance:
        found.append("same tolerance")
    if last.tolerance != tolerance:
        found.append(f"started with tolerance {tolerance:g}")
    if last.confidence != confidence:
        found.append(f"started with confidence {confidence:g}")
    return ", ".join(found) or None


def _find_point(
    frontier: Frontier, tolerance: float, confidence: float | None, *, moved: bool = False
) -> Point:
    """Return the point at a tolerance; raise if it can't be certified, with ways out."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FairdialWarning)
            return frontier.at(tolerance, confidence=confidence)
    except CannotCertifyError as error:
        other = "another `audit` and another `tolerance`" if moved else "another `tolerance`"
        raise CannotCertifyError(
            f"{error} Start with {other}, or without `confidence`.",
            smallest_tolerance=error.smallest_tolerance,
            rows_needed=error.rows_needed,
            group=error.group,
            group_rows=error.group_rows,
            group_rows_needed=error.group_rows_needed,
        ) from error


def describe_start(settings: Settings) -> str:
    """Return a sentence on the tolerance that is in effect as the server starts, and why."""
    tolerance, confidence = settings.tolerance, settings.confidence
    default = settings.default_tolerance
    source = "the model's default" if tolerance == default else "`tolerance`"
    if settings.audit is not None:
        log = AuditLog(settings.audit, write=False)
        try:
            last = log.last()
        finally:
            log.close()
        if last is not None:
            tolerance, confidence = last.tolerance, last.confidence
            source = f"audit log, version {last.version}"
    level = "" if confidence is None else f" with confidence {confidence:g}"
    other = f"; the model's default is {default:g}" if tolerance != default else ""
    return f"Tolerance {tolerance:g}{level} ({source}){other}."
