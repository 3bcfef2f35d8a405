"""Start the server: check everything, then serve in one process or several."""

from __future__ import annotations

import contextlib
import errno
import gc
import http.client
import ipaddress
import json
import logging
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from fairdial._files import write_file
from fairdial.errors import InvalidInputError, MissingExtraError, install_command
from fairdial.registry import load_plugins, plugins
from fairdial.serve.startup import (
    Settings,
    check_root_path,
    describe_start,
    find_all_tokens,
    make_app,
    prepare,
    prepare_again,
)

if TYPE_CHECKING:
    import uvicorn

    from fairdial.serve.guard import Guard
    from fairdial.serve.reload import Reloadable

HOST, PORT = "127.0.0.1", 8000
TOKEN = "FAIRDIAL_TOKEN"
SETTINGS = "FAIRDIAL_SERVE"  # environment variables for the processes: file of the settings,
ALONE = "FAIRDIAL_ALONE"  # whether there is only one process,
PLUGINS = "FAIRDIAL_PLUGINS"  # and the modules that register methods
COUNTERS = "PROMETHEUS_MULTIPROC_DIR"
LIBRARIES = ("fastapi", "uvicorn", "prometheus_client", "pydantic")
CONNECTIONS = 4096  # per process, if the system allows so many; others get a 503
OTHER_FILES = 128  # that a process may need to open besides its connections
KEEP_ALIVE = 30  # seconds that an idle connection is kept
GRACE = 10  # seconds that running requests have when the server stops
START = 120.0  # seconds that a process may take to answer its first request
POLL = 0.02  # seconds between looks whether the server listens
ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # and where to reach it from here
WHY_NOT = {  # why an address can't be used, and what to do
    errno.EADDRINUSE: "another program uses it; port 0 takes a free one",
    errno.EACCES: "the system reserves low ports; use 1024 or higher",
    errno.EADDRNOTAVAIL: "this machine doesn't have this address",
    socket.EAI_NONAME: "unknown host name",
}


log = logging.getLogger("fairdial.serve")


def serve(
    model: str | os.PathLike[str],
    *,
    host: str = HOST,
    port: int = PORT,
    workers: int = 1,
    audit: str | os.PathLike[str] | None = None,
    observed: str | os.PathLike[str] | None = None,
    read_only: bool = False,
    tolerance: float | None = None,
    confidence: float | None = None,
    token_env: str = TOKEN,
    token_file: str | os.PathLike[str] | None = None,
    open_observe: bool = False,
    key: str | os.PathLike[str] | None = None,
    allow_hosts: tuple[str, ...] = (),
    root_path: str = "",
    name: str | None = None,
    people: Mapping[str, str] | None = None,
    labels: tuple[str, str] | None = None,
    trusted: tuple[str, ...] = (),
    announce: Callable[[str], None] | None = None,
    progress: Callable[[str], None] | None = None,
) -> None:
    """Serve a saved model until the process is stopped.

    Parameters
    ----------
    model : path
        The model's folder.
    host, port : str, int
        Where to listen; port 0 takes a free one.
    workers : int
        Number of processes.
    audit : path or str, optional
        The audit log, which says what tolerance is in effect; created if it doesn't exist. By
        default it is next to the model's folder, with ``.audit.sqlite`` added to its name. The
        address of a PostgreSQL database, ``postgresql://user@host/name``, lets servers on several
        hosts share it.
    observed : path, optional
        The counts of observed rows; by default next to the audit log, or to the model's folder if
        the log is in a database.
    read_only : bool
        The dial can't be changed. The log is read if it exists, and never written.
    tolerance : float, optional
        The tolerance until somebody changes the dial; by default the model's.
    confidence : float, optional
        The lowest confidence that the dial must be certified with.
    token_env : str
        Environment variable with the token for changing the dial. It also allows sending
        observations; the token in ``FAIRDIAL_OBSERVE_TOKEN``, if set, allows only that.
    token_file : path, optional
        File with the SHA-256 of a token and a name in each line. These tokens change the dial under
        the name; the variable ``token_env`` need not be set then.
    open_observe : bool
        Anybody may send observations.
    key : path, optional
        File with the key that the model must be signed with.
    allow_hosts : tuple of str
        Host names that requests may use, besides ``host`` and the local ones.
    root_path : str
        Prefix of all paths, such as ``/dial``, for a proxy that keeps it.
    name : str, optional
        The page's title; by default the name of the model's folder.
    people : mapping, optional
        What the page calls the members of a group, by the group's name: ``{"Female": "women"}``.
    labels : (str, str), optional
        What the page calls the negative and the positive label.
    trusted : tuple of str
        Types in scikit-learn estimators to allow besides those on the library's list.
    announce : callable, optional
        Called with the server's address once it listens.
    progress : callable, optional
        Called with messages about the start.

    Raises
    ------
    InvalidInputError, ModelFileError, MissingExtraError, CannotCertifyError
        If the server can't start.

    Examples
    --------
    >>> from fairdial.serve.run import serve
    >>> serve("loans", read_only=True)  # doctest: +SKIP
    """
    need_libraries()
    find_all_tokens(token_env, token_file, read_only=read_only)
    check_root_path(root_path)
    find_port(host, port)  # fast checks come first
    from fairdial._validation import check_count
    from fairdial.io.folder import find_model

    check_count(workers, "workers")
    find_model(model)
    if progress is not None:
        progress(f"Loading {os.fspath(model)} ...")
    with _stopped_in_order(), tempfile.TemporaryDirectory(prefix="fairdial-serve-") as scratch:
        settings = prepare(
            model,
            audit=audit,
            observed=observed,
            read_only=read_only,
            tolerance=tolerance,
            confidence=confidence,
            token_env=token_env,
            open_observe=open_observe,
            key=key,
            hosts=known_hosts(host, allow_hosts),
            scratch=scratch,
            name=name,
            people=people,
            labels=labels,
            trusted=trusted,
            token_file=token_file,
            root_path=root_path,
        )
        port = find_port(host, port)
        if progress is not None:
            progress(describe_start(settings))
        file = Path(scratch, "settings.json")
        write_file(file, settings.to_json())
        variables = {SETTINGS: str(file), PLUGINS: json.dumps(plugins())}
        if workers == 1:
            variables[ALONE] = "yes"
        if workers > 1:
            counters = Path(scratch, "counters")
            counters.mkdir()
            variables[COUNTERS] = str(counters)
        with _announced(host, port, announce):
            _run(host, port, workers, variables)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


class _TerminatedError(BaseException):
    """The process received SIGTERM."""


@contextlib.contextmanager
def _stopped_in_order() -> Iterator[None]:
    """Let SIGTERM end the block like Ctrl-C, so that files are removed; then obey the signal."""
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL or not _in_main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise _TerminatedError

    signal.signal(signal.SIGTERM, stop)
    terminated = False
    try:
        yield
    except _TerminatedError:
        terminated = True
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if terminated:
        signal.raise_signal(signal.SIGTERM)


@contextlib.contextmanager
def _announced(host: str, port: int, announce: Callable[[str], None] | None) -> Iterator[None]:
    """Call ``announce`` with the address as soon as a process accepts connections there."""
    if announce is None:
        yield
        return
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
    ended = threading.Event()

    def wait() -> None:
        while not ended.wait(POLL):
            if _answers(ANY_ADDRESS.get(host, host), port):
                announce(address)
                return

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _answers(host: str, port: int) -> bool:
    """Return whether a process answers requests; workers share a port that listens before them."""
    connection = http.client.HTTPConnection(host, port, timeout=START)
    try:
        connection.request("GET", "/healthz")
        return bool(connection.getresponse().status)
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _run(host: str, port: int, workers: int, variables: Mapping[str, str]) -> None:
    import uvicorn

    from fairdial.serve.guard import GuardedProtocol

    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    config = uvicorn.Config(
        f"{__name__}:app_from_environment",
        factory=True,
        host=host,
        port=port,
        workers=workers,
        access_log=False,
        server_header=False,
        log_config=_logging(),
        http=GuardedProtocol,
        limit_concurrency=most_connections(),
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=GRACE,
        proxy_headers=False,
        ws="none",
    )
    obeys = _in_main_thread() and hasattr(signal, "SIGHUP")
    usual = signal.signal(signal.SIGHUP, signal.SIG_IGN) if obeys else None
    try:
        if workers == 1:
            uvicorn.Server(config).run()
        else:
            _run_workers(config, Path(variables[SETTINGS]))
    finally:
        if obeys:
            signal.signal(signal.SIGHUP, usual)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _run_workers(config: uvicorn.Config, file: Path) -> None:
    from uvicorn.supervisors import Multiprocess

    class Workers(Multiprocess):
        """Processes that reload the model by themselves once the parent has checked it."""

        def handle_hup(self) -> None:
            try:
                settings = prepare_again(Settings.from_json(file.read_text("utf-8")))
            except Exception as error:
                log.error("the model was not reloaded, and the old one stays: %s", error)
                return
            write_file(file, settings.to_json())
            for process in self.processes:
                if process.pid is not None:
                    os.kill(process.pid, signal.SIGHUP)

    with config.bind_socket() as listening:
        Workers(config, [listening]).run()


def app_from_environment() -> Reloadable:
    """Return the application of a process that :func:`serve` started."""
    from fairdial.serve.reload import Reloadable

    obeys = _in_main_thread() and hasattr(signal, "SIGHUP")
    if obeys and ALONE not in os.environ:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the process can obey
    load_plugins(json.loads(os.environ.get(PLUGINS, "{}")))
    file, alone = Path(os.environ[SETTINGS]), ALONE in os.environ

    def load() -> Guard:
        settings = Settings.from_json(file.read_text("utf-8"))
        if alone:  # otherwise the parent has done it
            settings = prepare_again(settings)
        app = make_app(settings)
        if alone:
            write_file(file, settings.to_json())
        log.info("the model %s is served now", settings.hash[:12])
        return app

    app = Reloadable(make_app(Settings.from_json(file.read_text("utf-8"))), load, obeys=obeys)
    gc.collect()
    gc.freeze()  # the model stays: the collector need not visit it again
    return app


def _logging() -> dict[str, object]:
    """Return a configuration that logs to stderr; requests are counted, not logged."""
    logger = {"handlers": ["stderr"], "level": "INFO", "propagate": False}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
        "loggers": {
            "fairdial.serve": logger,
            "uvicorn": {**logger, "level": "WARNING"},
        },
    }


# ---- checks ------------------------------------------------------------------------------------


def need_libraries() -> None:
    """Raise if a library of the server isn't installed."""
    for name in LIBRARIES:
        if find_spec(name) is None:
            raise MissingExtraError(f"The server needs {name}: {install_command('serve')}.")


def find_port(host: str, port: int) -> int:
    """Return the port, which must be free; 0 finds one."""
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port < 1 << 16:
        raise InvalidInputError("port", "be a whole number from 0 to 65535", given=repr(port))
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((host, port))
        except OSError as error:
            why = WHY_NOT.get(error.errno or 0, str(error))
            raise InvalidInputError(
                "port", "be free on `host`", given=f"{host}:{port} ({why})"
            ) from error
        found: int = trial.getsockname()[1]
        return found


def known_hosts(host: str, more: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the host names that requests may use; None allows any, for a public server."""
    local = host == "localhost"
    with contextlib.suppress(ValueError):
        local = local or ipaddress.ip_address(host).is_loopback
    if not local and not more:
        return None
    return ("localhost", "127.0.0.1", "[::1]", f"[{host}]" if ":" in host else host, *more)


def most_connections() -> int:
    """Return how many connections a process accepts: fewer than the files it may open."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        return CONNECTIONS
    files, allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = CONNECTIONS + OTHER_FILES
    if files != resource.RLIM_INFINITY and files < needed:
        files = needed if allowed == resource.RLIM_INFINITY else min(needed, allowed)
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, allowed))  # workers inherit it
        return max(files - OTHER_FILES, 1)
    return CONNECTIONS
