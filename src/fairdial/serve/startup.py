"""Everything before a server listens: tokens, the model, and the dial in the audit log."""

from __future__ import annotations

import contextlib
import json
import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
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
from fairdial.serve.tokens import Tokens, find_tokens, read_tokens

if TYPE_CHECKING:
    from fairdial.core.frontier import Frontier
    from fairdial.core.point import Point
    from fairdial.estimators.base import DialClassifier
    from fairdial.serve.guard import Guard

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
    token_file: str | None = None
    root_path: str = ""
    requested: float | None = None  # the tolerance that was given
    meaning: str = ""  # what another model must share for the dial to carry over

    @classmethod
    def from_json(cls, text: str) -> Settings:
        """Return settings from :meth:`to_json`."""
        data = json.loads(text)
        pairs = {key: data[key] and tuple(data[key]) for key in ("hosts", "labels", "trusted")}
        return cls(**data | pairs)

    def to_json(self) -> str:
        """Return the settings as text."""
        return json.dumps(asdict(self))


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
    token_file: str | os.PathLike[str] | None = None,
    root_path: str = "",
    before: str | None = None,
) -> Settings:
    """Check everything, and record the dial's tolerance; arguments are as in ``run.serve``.

    ``before`` is the meaning of the dial that must carry over, if another model was served.
    """
    from fairdial._validation import check_confidence, check_one_tolerance
    from fairdial.io.folder import read_folder
    from fairdial.io.frontiers import FRONTIER, frontier_from_arrays
    from fairdial.io.values import unpack
    from fairdial.serve.deciding import refuse_unserved
    from fairdial.serve.page_data import match_people

    find_all_tokens(token_env, token_file, read_only=read_only)
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
        token_file=None if token_file is None else str(Path(token_file).absolute()),
        root_path=check_root_path(root_path),
        requested=tolerance,
    )
    if place is None or not has_entries(place):
        _find_point(frontier, start, confidence)  # before a log is created
    loaded = load_model(settings)
    settings = replace(settings, meaning=_meaning(frontier, loaded.classes_.tolist()))
    if before is not None and settings.meaning != before:
        raise InvalidInputError(
            "model",
            "have the criterion, groups and labels of the model that is served, for the dial to "
            "carry over",
            given=f"{settings.meaning} after {before}",
            hint="Restart the server to serve it.",
        )
    if place is not None:
        _record_start(settings, frontier, requested=tolerance is not None)
    return settings


def prepare_again(settings: Settings) -> Settings:
    """Check the folder as it is now, and record that its model is served; the dial carries over.

    Raises if it can't: if the model can't certify the dial's tolerance, or has another criterion.
    """
    return prepare(
        settings.model,
        audit=settings.audit,
        observed=settings.observed,
        read_only=settings.read_only,
        tolerance=settings.requested if settings.audit is None else None,
        confidence=settings.confidence,
        token_env=settings.token_env,
        open_observe=settings.open_observe,
        key=settings.key,
        hosts=settings.hosts,
        scratch=Path(settings.observed).parent,
        name=settings.name,
        people=settings.people,
        labels=settings.labels,
        trusted=settings.trusted,
        token_file=settings.token_file,
        root_path=settings.root_path,
        before=settings.meaning,
    )


def _meaning(frontier: Frontier, labels: list[object]) -> str:
    groups, names = map(str, frontier.groups), map(str, labels)
    return f"{frontier.criterion.name} of {', '.join(groups)} ({', '.join(names)})"


def check_root_path(path: str) -> str:
    """Return the prefix of all paths as ``/dial``, or an empty one."""
    found = path.strip("/")
    if re.fullmatch(r"[\w.~-]*(/[\w.~-]+)*", found, re.ASCII) is None:
        raise InvalidInputError("root_path", "be a path such as /dial", given=repr(path))
    return f"/{found}" if found else ""


def find_all_tokens(name: str, file: str | os.PathLike[str] | None, *, read_only: bool) -> Tokens:
    """Return the tokens of the environment and of the file; one is needed to change the dial."""
    people = {} if file is None else read_tokens(file)
    owner, observer = find_tokens(name, os.environ, needed=not read_only and not people)
    return Tokens(owner, observer, people)


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


def make_app(settings: Settings) -> Guard:
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
    tokens = find_all_tokens(settings.token_env, settings.token_file, read_only=settings.read_only)
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
        tokens=tokens,
        open_observe=settings.open_observe,
        hosts=settings.hosts,
        root_path=settings.root_path,
    )


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
