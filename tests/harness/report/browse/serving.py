"""A server of a results directory for a test, on a port of its own, and a client that sends paths as they are."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import uvicorn

from harness.record.catalog.index import Index
from harness.report.browse.server import make_app

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Answer:
    """headers: by their names in small letters."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def text(self) -> str:
        return self.content.decode()

    def json(self) -> Any:
        return json.loads(self.content)


@dataclass(frozen=True)
class Client:
    port: int

    @property
    def address(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def get(
        self,
        path: str,
        params: Mapping[str, str | list[str]] | None = None,
        *,
        method: str = "GET",
        host: str | None = None,
    ) -> Answer:
        """path: only what no request can hold is quoted."""
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=30)
        try:
            target = quote(path, safe="/%?&=.:\\+,-_~") + (f"?{urlencode(params, doseq=True)}" if params else "")
            connection.putrequest(method, target, skip_host=True)
            connection.putheader("Host", f"{LOOPBACK}:{self.port}" if host is None else host)
            connection.endheaders()
            answer = connection.getresponse()
            return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        finally:
            connection.close()


def alive(record: Mapping[str, Any]) -> bool:
    return True


@contextmanager
def served(results: Path, host: str = LOOPBACK) -> Iterator[Client]:
    """host: what the server takes itself to listen on."""
    index = Index(results, alive)
    index.refresh()
    with socket.socket() as listening:
        listening.bind((LOOPBACK, 0))
        listening.listen()
        app: Any = make_app(index, "chaos", host, stale_s=0.0)
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", server_header=False, lifespan="off"))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            yield Client(listening.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join()
            index.close()
