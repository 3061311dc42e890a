"""`chaos serve`: pages of a results directory, and the files below it, for GET and HEAD alone.

What runs leave may have been written by anybody (a run that was sent, nodes that were broken into), so: pages escape
everything; no path leads out of the directory; nothing below it is shown as a page but reports, and these in a sandbox,
so that a script in one can neither read other pages nor ask this server for anything. On a loopback address, requests
that name another host are refused: a page of somebody else's, whose name was made to lead here, reads nothing.
"""

from __future__ import annotations

import ipaddress
import os
import stat
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from harness.record.catalog.filters import Filter
from harness.record.catalog.index import Index
from harness.report.browse.pages import NotFound, Pages
from harness.report.browse.paths import NotServed, directory_below, open_below, parts_of
from harness.report.browse.rendering import TEMPLATES, Served, clean

#: Of our own pages: nothing but our own style sheet and scripts.
OWN_POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src data:; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
#: Of a report, which names the digest of its script itself. The sandbox gives it an origin of its own.
REPORT_POLICY: Final = (
    "sandbox allow-scripts allow-downloads allow-popups; default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; img-src data:; font-src data:; form-action 'none'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
#: Of everything else.
FILE_POLICY: Final = "default-src 'none'; sandbox; frame-ancestors 'none'"
#: How old what is shown may be, in seconds, but for what has changed in the results directory itself.
STALE_S: Final = 2.0
_AFTER_S: Final = 0.2
#: A refresh of very many runs is followed by so many times as long without one.
_REST: Final = 20
_PAGES: Final = frozenset({"report.html", "index.html", "matrix.html"})
_TEXTS: Final = frozenset({".toml", ".log", ".jsonl", ".txt", ".md", ".properties", ".edn", ".xml", ".out", ".err", ""})
_ASSETS: Final = {"browse.css": "text/css", "live.js": "text/javascript"}
_METHODS: Final = ("GET", "HEAD")
_CHUNK: Final = 1 << 18
_LAST_PAGE: Final = 1_000_000


class Freshness:
    """Refreshes an index, which was refreshed just now, in a thread of its own, so that no page waits for it: a request
    sees what the last refresh saw, and waits for the next one only if the results directory itself has changed."""

    def __init__(self, index: Index, stale_s: float = STALE_S) -> None:
        self._index = index
        self._stale_s = stale_s
        self._lock = threading.Lock()
        self._next = time.monotonic() + stale_s
        self._changed = self._when_changed()
        self._busy = False

    def ensure(self) -> None:
        changed = self._when_changed()
        with self._lock:
            if changed == self._changed and (self._busy or time.monotonic() < self._next):
                return
            wait = changed != self._changed
            self._changed, self._busy = changed, True
        if wait:
            self._refresh()
        else:
            # The request that asked for it is answered first: both would take the same processor.
            timer = threading.Timer(_AFTER_S, self._refresh)
            timer.daemon = True
            timer.start()

    def _refresh(self) -> None:
        began = time.monotonic()
        try:
            self._index.refresh()
        finally:
            ended = time.monotonic()
            with self._lock:
                self._next, self._busy = ended + max(self._stale_s, _REST * (ended - began)), False

    def _when_changed(self) -> int:
        try:
            return os.stat(self._index.results).st_mtime_ns
        except OSError:
            return -1


def make_app(index: Index, made: str, host: str, *, stale_s: float = STALE_S) -> ASGIApp:
    """host: the address that is listened on. made: what stands at the foot of each page."""
    pages = Pages(index, Served(), made)
    fresh = Freshness(index, stale_s)

    def page(show: Callable[[Request], Response]) -> Callable[[Request], Awaitable[Response]]:
        def shown(request: Request) -> Response:
            fresh.ensure()
            try:
                return show(request)
            except (NotFound, NotServed) as error:
                return _own(pages.message("Not found", str(error)), 404)

        async def answer(request: Request) -> Response:
            return await run_in_threadpool(shown, request)

        return answer

    def runs(request: Request) -> Response:
        wanted = Filter.of(request.query_params)
        asked = request.query_params.get("page", "1")
        number = int(asked) if asked.isascii() and asked.isdigit() and len(asked) < 8 else 1
        html = pages.list_page(wanted, min(max(number, 1), _LAST_PAGE))
        return _own(html, 400 if wanted.problems() else 200)

    def entry(request: Request) -> Response:
        return _own(pages.entry_page("/".join(parts_of(request.path_params["path"]))))

    def live(request: Request) -> Response:
        return _own(pages.live_part("/".join(parts_of(request.path_params["path"]))))

    def compare(request: Request) -> Response:
        return _own(pages.compare_page(request.query_params.getlist("run")))

    def trends(request: Request) -> Response:
        query = request.query_params
        return _own(pages.trends_page(query.get("suite", ""), query.get("plan", "")))

    def files(request: Request) -> Response:
        return _file(pages, index.results, request.path_params.get("path", ""))

    def asset(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _ASSETS:
            raise NotFound("There is no such file.")
        return Response((TEMPLATES / name).read_bytes(), media_type=_ASSETS[name],
                        headers={"Content-Security-Policy": FILE_POLICY})  # fmt: skip

    async def missing(request: Request, error: Exception) -> Response:
        return _own(pages.message("Not found", "There is no such page."), 404)

    async def broken(request: Request, error: Exception) -> Response:
        return _own(pages.message("An error of ours", f"This page could not be made: {type(error).__name__}."), 500)

    app = Starlette(
        routes=[
            Route("/", page(runs)), Route("/run/{path:path}", page(entry)), Route("/live/{path:path}", page(live)),
            Route("/compare", page(compare)), Route("/trends", page(trends)), Route("/files/{path:path}", page(files)),
            Route("/assets/{name}", page(asset)),
        ],
        exception_handlers={404: missing, 500: broken},
    )  # fmt: skip
    app.router.redirect_slashes = False
    return Guarded(app, host)


class Guarded:
    """What holds of every request and every answer."""

    def __init__(self, app: ASGIApp, host: str) -> None:
        self._app = app
        self._only_here = is_loopback(host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                known = {name.lower() for name, _ in message["headers"]}
                added = [(name, value) for name, value in _ALWAYS if name not in known]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        refused: Response | None = None
        if scope["method"] not in _METHODS:
            refused = PlainTextResponse("Only GET and HEAD are answered here.\n", 405, {"Allow": ", ".join(_METHODS)})
        elif self._only_here and not _names_here(Headers(scope=scope).getlist("host")):
            refused = PlainTextResponse("This server is asked by another name than its own; use localhost.\n", 421)
        await (refused or self._app)(scope, receive, sent)


_ALWAYS: Final = (
    (b"content-security-policy", FILE_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-cache"),
)


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _names_here(hosts: list[str]) -> bool:
    if len(hosts) != 1:
        return False
    given = hosts[0].strip().lower()
    name = given[1:].partition("]")[0] if given.startswith("[") else given.rpartition(":")[0] or given
    return name == "localhost" or is_loopback(name)


def _own(html: str, status: int = 200) -> Response:
    return HTMLResponse(html, status, {"Content-Security-Policy": OWN_POLICY})


def _file(pages: Pages, root: Path, path: str) -> Response:
    """Raises NotServed."""
    descriptor = open_below(root, path)
    found = os.fstat(descriptor)
    if stat.S_ISDIR(found.st_mode):
        os.close(descriptor)
        parts = parts_of(path)
        listed = pages.files("/".join(parts), directory_below(root, path))
        return _own(pages.message("Files", f"Below results/{'/'.join(parts)}:", listed))
    name = path.rpartition("/")[2]
    suffix = Path(name).suffix.lower()
    headers = {"Content-Length": str(found.st_size), "Content-Security-Policy": FILE_POLICY}
    if name in _PAGES:
        media_type, headers["Content-Security-Policy"] = "text/html; charset=utf-8", REPORT_POLICY
    elif suffix == ".json":
        media_type = "application/json"
    elif suffix in _TEXTS:
        media_type = "text/plain; charset=utf-8"
    else:
        media_type = "application/octet-stream"
        headers["Content-Disposition"] = f'attachment; filename="{_plain(name)}"'
    content = chunks(os.fdopen(descriptor, "rb"), found.st_size)
    return StreamingResponse(content, media_type=media_type, headers=headers)


def chunks(file: BinaryIO, length: int) -> Iterator[bytes]:
    """Of a file as much as was promised, then it is closed: a log may grow meanwhile."""
    with file:
        while length > 0 and (chunk := file.read(min(_CHUNK, length))):
            length -= len(chunk)
            yield chunk


def _plain(name: str) -> str:
    return clean("".join(each if each.isascii() and (each.isalnum() or each in "._-") else "_" for each in name), 100)
