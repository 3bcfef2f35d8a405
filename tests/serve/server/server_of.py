"""A server that can be started again at once: everything is imported, then copies are made.

    python server_of.py SETTINGS.json

For every line ``start PORT`` a copy of this process (fork) serves the application with uvicorn and
its number is printed; the copies are killed by whoever asked. A line ``limit BYTES`` lets files of
the copies that come grow to that size only: a disk that is full.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from pathlib import Path

import uvicorn

from fairdial.serve.startup import Settings, make_app


def main() -> None:
    """Serve on demand."""
    data = json.loads(Path(sys.argv[1]).read_text())
    settings = Settings(**data | {"hosts": None})
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the copies
    most = resource.RLIM_INFINITY
    print("ready", flush=True)
    for line in sys.stdin:
        word, number = line.split()
        if word == "limit":
            most = int(number)
            continue
        pid = os.fork()
        if pid == 0:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
            uvicorn.run(
                make_app(settings),
                host="127.0.0.1",
                port=int(number),
                log_level="critical",
                access_log=False,
            )
            os._exit(0)
        print(pid, flush=True)


if __name__ == "__main__":
    main()
