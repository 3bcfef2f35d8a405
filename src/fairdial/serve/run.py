"""Start the server: check everything first, then serve, in one process or several."""

from __future__ import annotations

import contextlib
import errno
import gc
import ipaddress
import json
import os
import signal
import socket
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairdial.errors import (
    CannotCertifyError,
    FairdialWarning,
    InfeasibleToleranceWarning,
    InvalidInputError,
    MissingExtraError,
    say_install,
    warn,
)
from fairdial.serve.audit import BESIDE, SERVER, AuditLog, Entry
from fairdial.serve.naming import people_of

if TYPE_CHECKING:
    from fairdial.frontier import Frontier
    from fairdial.serve.guard import App

HOST, PORT = "127.0.0.1", 8000
TOKEN = "FAIRDIAL_TOKEN"
OBSERVER = "FAIRDIAL_OBSERVE_TOKEN"  # may have a token that sends observations and no more
SETTINGS = "FAIRDIAL_SERVE"  # how processes learn what to serve
COUNTERS = "PROMETHEUS_MULTIPROC_DIR"
SHORTEST_TOKEN = 16
LIBRARIES = ("fastapi", "uvicorn", "prometheus_client", "pydantic")
CONNECTIONS = 4096  # at once, if the system allows so many; more are answered with 503
OTHER_FILES = 128  # that a process may need open besides its connections
KEPT = 30  # seconds that an idle connection is kept
GRACE = 10  # seconds that requests have to end when the server stops
OBSERVED = ".observed"
LEVEL = 0.95  # of the page's statements about new rows
WHY_NOT = {  # why a place can't be listened on, and what to do
    errno.EADDRINUSE: "another program listens there; port 0 takes a free one",
    errno.EACCES: "the system allows low ports to few; take one from 1024 on",
    errno.EADDRNOTAVAIL: "this machine has no such address",
    socket.EAI_NONAME: "no machine is called so",
}


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
    own: float  # where the dial of the model's folder rests
    confidence: float | None
    token_env: str
    open_observe: bool
    hosts: tuple[str, ...] | None
    name: str
    people: Mapping[str, str] = field(default_factory=dict)
    labels: tuple[str, str] | None = None


def serve(
    model: str | os.PathLike[str],
    *,
    host: str = HOST,
    port: int = PORT,
    workers: int = 1,
    audit: str | os.PathLike[str] | None = None,
    read_only: bool = False,
    tolerance: float | None = None,
    confidence: float | None = None,
    token_env: str = TOKEN,
    open_observe: bool = False,
    key: str | os.PathLike[str] | None = None,
    allow_hosts: tuple[str, ...] = (),
    name: str | None = None,
    people: Mapping[str, str] | None = None,
    labels: tuple[str, str] | None = None,
    announce: Callable[[str], None] | None = None,
    tell: Callable[[str], None] | None = None,
) -> None:
    """Serve a saved model until the process is stopped.

    Parameters
    ----------
    model : path
        The model's folder.
    host, port : str, int
        Where to listen; port 0 takes a free one.
    workers : int
        Processes.
    audit : path, optional
        The audit log, made where there is none; by default beside the model's folder, with
        ``.audit.sqlite`` after its name. It decides where the dial stands.
    read_only : bool
        The dial can't be moved. The log is read where there is one, and never written.
    tolerance : float, optional
        Where the dial stands until somebody moves it; the model's own by default.
    confidence : float, optional
        Positions of the dial must be certified with at least this confidence.
    token_env : str
        Name of the environment variable with the token that moves the dial. It also sends
        observations; the token in ``FAIRDIAL_OBSERVE_TOKEN``, if there is one, does only that.
    open_observe : bool
        Anybody may send observations.
    key : path, optional
        File with the key with which the model must be signed.
    allow_hosts : tuple of str
        Names besides ``host`` and the local ones under which the server may be asked.
    name : str, optional
        The page's title; by default the name of the model's folder.
    people : mapping, optional
        What the page calls the members of a group, by the group's name: ``{"Female": "women"}``.
    labels : (str, str), optional
        What the page calls the negative and the positive label.
    announce : callable, optional
        Told the server's address when it is about to listen.
    tell : callable, optional
        Told before what takes a while, and where the dial stands.

    Raises
    ------
    InvalidInputError, ModelFileError, MissingExtraError, CannotCertifyError
        Something is not as it must be; nothing was served.

    Examples
    --------
    >>> from fairdial.serve.run import serve
    >>> serve("loans", read_only=True)  # doctest: +SKIP
    """
    need_libraries()
    find_tokens(token_env, os.environ, needed=not read_only)
    find_port(host, port)  # what takes no time comes first
    from fairdial._validation import check_count
    from fairdial.persistence.folder import find_model

    check_count(workers, "workers")
    find_model(model)
    if tell is not None:
        tell(f"Loading {os.fspath(model)} ...")
    with _terminated(), tempfile.TemporaryDirectory(prefix="fairdial-serve-") as scratch:
        settings = prepare(
            model,
            audit=audit,
            read_only=read_only,
            tolerance=tolerance,
            confidence=confidence,
            token_env=token_env,
            open_observe=open_observe,
            key=key,
            hosts=known_hosts(host, allow_hosts),
            scratch=scratch,
            name=name,
            people=people or {},
            labels=labels,
        )
        port = find_port(host, port)
        if tell is not None:
            tell(say_standing(settings))
        if announce is not None:
            announce(f"http://{f'[{host}]' if ':' in host else host}:{port}/")
        given = {SETTINGS: json.dumps(asdict(settings))}
        if workers > 1:
            counters = Path(scratch, "counters")
            counters.mkdir()
            given[COUNTERS] = str(counters)
        _run(host, port, workers, given)


class _TerminatedError(BaseException):
    """SIGTERM has come."""


@contextlib.contextmanager
def _terminated() -> Iterator[None]:
    """What is within ends in order at SIGTERM, as it does at Ctrl-C; then the signal is heeded."""
    usual = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if not usual or threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> None:
        raise _TerminatedError

    signal.signal(signal.SIGTERM, end)
    ended = False
    try:
        yield
    except _TerminatedError:
        ended = True
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if ended:
        signal.raise_signal(signal.SIGTERM)


def _run(host: str, port: int, workers: int, given: Mapping[str, str]) -> None:
    import uvicorn

    from fairdial.serve.patience import PatientProtocol

    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        uvicorn.run(
            f"{__name__}:app_from_environment",
            factory=True,
            host=host,
            port=port,
            workers=workers,
            access_log=False,
            server_header=False,
            log_config=_logging(),
            http=PatientProtocol,
            limit_concurrency=most_connections(),
            timeout_keep_alive=KEPT,
            timeout_graceful_shutdown=GRACE,
            proxy_headers=False,
            ws="none",
        )
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def most_connections() -> int:
    """How many connections a process takes: fewer than it may have files open."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        return CONNECTIONS
    files, allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
    wished = CONNECTIONS + OTHER_FILES
    if files != resource.RLIM_INFINITY and files < wished:
        files = wished if allowed == resource.RLIM_INFINITY else min(wished, allowed)
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, allowed))  # workers inherit it
        return max(files - OTHER_FILES, 1)
    return CONNECTIONS


def app_from_environment() -> App:
    """The application of a process that :func:`serve` has started."""
    data = json.loads(os.environ[SETTINGS])
    lists = {key: data[key] and tuple(data[key]) for key in ("hosts", "labels")}
    app = make_app(Settings(**data | lists))
    gc.collect()
    gc.freeze()  # the model stays: no need to look through it again and again
    return app


def need_libraries() -> None:
    """What the server is made with is installed."""
    for name in LIBRARIES:
        if find_spec(name) is None:
            raise MissingExtraError(f"the server needs {name}: {say_install('serve')}.")


# ---- before listening --------------------------------------------------------------------------


def prepare(
    model: str | os.PathLike[str],
    *,
    audit: str | os.PathLike[str] | None,
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
) -> Settings:
    """Check everything, and put the dial where it is to stand; the rest is as in :func:`serve`."""
    from fairdial._validation import check_fraction, check_one
    from fairdial.persistence.folder import read_folder
    from fairdial.persistence.frontiers import FRONTIER, frontier_from_arrays
    from fairdial.persistence.values import unpack

    find_tokens(token_env, os.environ, needed=not read_only)
    if confidence is not None:
        check_fraction(confidence, "confidence")
    folder = Path(model).absolute()
    stored = read_folder(folder, key=key)
    told = stored.manifest["frontier"]
    if told is None:
        raise InvalidInputError("`model` must be calibrated to be served, got one that isn't.")
    frontier = frontier_from_arrays(told, stored.files[FRONTIER], FRONTIER)
    own = unpack(stored.manifest["parameters"]["tolerance"])
    start = check_one(own if tolerance is None else tolerance)
    place: Path | None = Path(audit or f"{folder}{BESIDE}").absolute()
    if read_only and audit is None and place is not None and not place.is_file():
        place = None
    settings = Settings(
        model=str(folder),
        hash=stored.hash,
        key=None if key is None else str(Path(key).absolute()),
        audit=None if place is None else str(place),
        observed=str(Path(scratch, "observed.sqlite") if read_only else f"{place}{OBSERVED}"),
        read_only=read_only,
        tolerance=start,
        own=check_one(own),
        confidence=confidence,
        token_env=token_env,
        open_observe=open_observe,
        hosts=hosts,
        name=name or folder.name,
        people=people or {},
        labels=labels,
    )
    people_of(frontier.groups, settings.people)
    if place is None or not _holds(place):
        asked = tolerance is not None  # and checked before a log is made
        _certify(frontier, start, confidence, kept=False, asked=asked)
    _load(settings)
    _settle(settings, frontier, wished=tolerance is not None)
    return settings


def _load(settings: Settings) -> Any:
    """The whole model."""
    from fairdial.methods.loading import load
    from fairdial.persistence.quick import import_skops

    with contextlib.suppress(MissingExtraError):  # the model may not need it
        import_skops()
    model = load(settings.model, key=settings.key)
    if model.model_hash_ != settings.hash:
        raise InvalidInputError(
            "`model` must stay the same while it is served, got a folder that was replaced; start "
            "the server anew."
        )
    return model


def _settle(settings: Settings, frontier: Frontier, *, wished: bool) -> None:
    """Put the dial where it is to stand, and record it if that is another place or model."""
    if settings.audit is None:
        _certify(frontier, settings.tolerance, settings.confidence, kept=False, asked=wished)
        return
    writes = not settings.read_only
    log = AuditLog(settings.audit, create=writes, write=writes)
    try:
        altered = log.altered()
        if altered is not None:
            raise InvalidInputError(
                f"`audit` must be as the server wrote it, got {settings.audit!r} whose entry "
                f"{altered} was altered. Keep the file, and start with another `audit`."
            )
        last, moved = log.last(), log.moved()
        tolerance, confidence = settings.tolerance, settings.confidence
        if last is not None:
            if moved or not wished or settings.read_only:
                tolerance = last.tolerance
                if wished and tolerance != settings.tolerance:
                    _warn_unused(settings, last)
            wishes = [c for c in (last.confidence, settings.confidence) if c is not None]
            confidence = max(wishes, default=None)
        asked = wished and tolerance == settings.tolerance
        _certify(frontier, tolerance, confidence, kept=moved, asked=asked)
        reason = _why(last, settings.hash, tolerance, confidence)
        if writes and reason is not None:
            log.append(
                tolerance=tolerance,
                confidence=confidence,
                gap=_gap(frontier, tolerance, confidence),
                who=SERVER,
                reason=reason,
                model=settings.hash,
                seen=last.version if last is not None else 0,
            )
    finally:
        log.close()


def _warn_unused(settings: Settings, last: Entry) -> None:
    """Say that the log decides where the dial stands, and not what was asked for."""
    how = "move it by the server's page or by PUT /v1/dial"
    if settings.read_only:
        how = "a server that isn't read-only moves it, by its page or by PUT /v1/dial"
    warn(
        f"`tolerance` {settings.tolerance:g} isn't used: the dial stands at {last.tolerance:g}, "
        f"where the audit log says (version {last.version}); {how}",
        FairdialWarning,
    )


def _why(last: Entry | None, model: str, tolerance: float, confidence: float | None) -> str | None:
    """What a start changes, for the log; None: nothing."""
    if last is None:
        return "first start"
    found = [] if last.model == model else ["the model's folder was changed"]
    if found and last.tolerance == tolerance:
        found.append("the dial was not moved")
    if last.tolerance != tolerance:
        found.append(f"started with tolerance {tolerance:g}")
    if last.confidence != confidence:
        found.append(f"started with confidence {confidence:g}")
    return ", ".join(found) or None


def say_standing(settings: Settings) -> str:
    """Where the dial stands as the server starts, and who says so."""
    tolerance, confidence = settings.tolerance, settings.confidence
    source = "the folder's own" if tolerance == settings.own else "`tolerance`"
    if settings.audit is not None:
        log = AuditLog(settings.audit, write=False)
        try:
            last = log.last()
        finally:
            log.close()
        if last is not None:
            tolerance, confidence = last.tolerance, last.confidence
            source = f"audit log, version {last.version}"
    sure = "" if confidence is None else f" with confidence {confidence:g}"
    other = f"; the folder's own is {settings.own:g}" if tolerance != settings.own else ""
    return f"The dial stands at {tolerance:g}{sure} ({source}){other}."


def _certify(
    frontier: Frontier, tolerance: float, confidence: float | None, *, kept: bool, asked: bool
) -> None:
    """Whether a position can be certified; ``asked``: its tolerance was given for this start."""
    if confidence is None:
        return
    try:
        frontier.at(tolerance, confidence=confidence)
    except CannotCertifyError as error:
        way = (
            "Start with an `audit` of its own and another `tolerance`"
            if kept
            else "Start with another `tolerance`"
        )
        told = str(error)
        if not asked:
            told = told.replace("`tolerance`=", "Where the dial stands, tolerance ", 1)
        raise CannotCertifyError(
            f"{told} {way}, or without `confidence`.",
            smallest_tolerance=error.smallest_tolerance,
            rows_needed=error.rows_needed,
        ) from error


def find_tokens(
    name: str, environment: Mapping[str, str], *, needed: bool
) -> tuple[str | None, str | None]:
    """The token that moves the dial, and the one that sends observations only, if there are."""
    token = find_token(name, environment) if needed or environment.get(name) else None
    other = find_token(OBSERVER, environment) if environment.get(OBSERVER) else None
    return token, other


def _gap(frontier: Frontier, tolerance: float, confidence: float | None) -> float:
    """That of the calibration rows at a place."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InfeasibleToleranceWarning)
        return frontier.at(tolerance, confidence=confidence).gap


def _holds(path: Path) -> bool:
    """Whether there is a file with something in it."""
    with contextlib.suppress(OSError):
        return path.stat().st_size > 0
    return False


def find_token(name: str, environment: Mapping[str, str]) -> str:
    """The token that moves the dial."""
    token = environment.get(name, "")
    if not token:
        raise InvalidInputError(
            f"`token_env`: the environment must have a token in {name}, with which the dial is "
            "moved, got none. Set one (such as `openssl rand -hex 32` prints), or start with "
            "`read_only`."
        )
    if len(token) < SHORTEST_TOKEN or not token.isascii() or token != token.strip():
        raise InvalidInputError(
            f"`token_env`: the token in {name} must have at least {SHORTEST_TOKEN} characters, "
            "all ASCII, without spaces around them, got another."
        )
    return token


def known_hosts(host: str, more: tuple[str, ...]) -> tuple[str, ...] | None:
    """Names under which the server may be asked; any, where it listens to other machines."""
    local = host == "localhost"
    with contextlib.suppress(ValueError):
        local = local or ipaddress.ip_address(host).is_loopback
    if not local and not more:
        return None
    return ("localhost", "127.0.0.1", "[::1]", f"[{host}]" if ":" in host else host, *more)


def find_port(host: str, port: int) -> int:
    """The port, which must be free; 0 finds one."""
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port < 1 << 16:
        raise InvalidInputError(f"`port` must be a whole number from 0 to 65535, got {port!r}.")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((host, port))
        except OSError as error:
            why = WHY_NOT.get(error.errno or 0, str(error))
            raise InvalidInputError(
                f"`host` and `port` must be free to listen on, got {host}:{port} ({why})."
            ) from error
        found: int = trial.getsockname()[1]
        return found


# ---- a process ---------------------------------------------------------------------------------


def make_app(settings: Settings) -> App:
    """The application of one process."""
    from fairdial.serve.app import create_app
    from fairdial.serve.deciding import Decider
    from fairdial.serve.observed import Observations
    from fairdial.serve.page_data import page_data
    from fairdial.serve.service import Service

    model = _load(settings)
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
    level = LEVEL if settings.confidence is None else settings.confidence
    return create_app(
        service,
        document=lambda: page_data(
            model,
            name=settings.name,
            people=people_of(decider.frontier.groups, settings.people),
            labels=settings.labels,
            tolerance=settings.tolerance,
            confidence=level,
        ),
        token=token,
        observer=observer,
        open_observe=settings.open_observe,
        hosts=settings.hosts,
    )


def _logging() -> dict[str, Any]:
    """Lines on stderr; requests are counted, not logged."""
    lines = {"handlers": ["stderr"], "level": "INFO", "propagate": False}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
        "loggers": {
            "fairdial.serve": lines,
            "uvicorn": {**lines, "level": "WARNING"},
        },
    }
