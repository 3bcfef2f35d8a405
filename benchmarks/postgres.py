"""A PostgreSQL server of this machine's packages, for tests: started, stopped, killed, frozen."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

USER = "dial"
FAST = ("shared_buffers=16MB", "max_connections=60")


def programs() -> Path | None:
    """Return the folder of PostgreSQL's programs, the newest version of Debian's packages."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if found:
        return found[-1].parent
    program = shutil.which("postgres")
    return None if program is None else Path(program).resolve().parent


def as_postgres(*command: str) -> list[str]:
    """Return a command as another user, because PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return list(command)
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", *command]


class Postgres:
    """A server in a folder, on one port of an address."""

    CRASH = signal.SIGQUIT  # at once, without a checkpoint

    def __init__(self, folder: Path, address: str = "127.0.0.1") -> None:
        found = programs()
        assert found is not None
        self.bin, self.folder, self.address = found, folder, address
        with socket.socket() as free:
            free.bind((address, 0))
            self.port = free.getsockname()[1]
        self.process: subprocess.Popen[bytes] | None = None
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            os.chown(folder, user.pw_uid, user.pw_gid)
        options = "-D", f"{folder}/data", "-U", USER, "--auth=trust", "-E", "UTF8", "--locale=C"
        command = as_postgres(str(self.bin / "initdb"), *options, "--no-sync")
        subprocess.run(command, check=True, capture_output=True, cwd=folder)
        access = "host all all 0.0.0.0/0 trust\n"
        with (folder / "data" / "pg_hba.conf").open("a") as file:
            file.write(access)

    def url(self, schema: str | None = None) -> str:
        """Return the address of the database, with a schema of its own."""
        more = "" if schema is None else f"?options=-csearch_path%3D{schema}"
        return f"postgresql://{USER}:no-secret@{self.address}:{self.port}/postgres{more}"

    def start(self) -> None:
        """Start, and wait until it answers."""
        given = [f"listen_addresses={self.address}", f"port={self.port}", *FAST]
        given.append(f"unix_socket_directories={self.folder}")
        options = [text for option in given for text in ("-c", option)]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                as_postgres(str(self.bin / "postgres"), "-D", f"{self.folder}/data", *options),
                stderr=log,
                stdout=log,
                cwd=self.folder,
                start_new_session=True,
            )
        until = time.monotonic() + 60
        while True:
            try:
                psycopg.connect(self.url(), connect_timeout=5).close()
                return
            except psycopg.Error:
                if time.monotonic() > until or self.process.poll() is not None:
                    raise RuntimeError((self.folder / "log").read_text("utf-8")) from None
            time.sleep(0.05)

    def stop(self, number: int = signal.SIGINT) -> None:
        """Stop: by default, connections end at once."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(60)
            self.process = None

    def execute(self, url: str, *statements: str) -> None:
        """Run statements as somebody else."""
        with psycopg.connect(url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def freeze(self) -> None:
        """Stop every process of the server in its tracks: connections stay, nothing answers."""
        self._signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: int) -> None:
        assert self.process is not None
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                session = int(path.read_text().rpartition(")")[2].split()[3])
            except OSError:
                continue
            if session == self.process.pid or _parent(path) == self.process.pid:
                os.kill(int(path.parent.name), number)


def _parent(path: Path) -> int:
    try:
        return int(path.read_text().rpartition(")")[2].split()[1])
    except OSError:
        return -1


@contextmanager
def running(address: str = "127.0.0.1") -> Iterator[Postgres]:
    """Run a server with an empty database, which is removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="fairdial-postgres-"))
    server = Postgres(folder, address)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
