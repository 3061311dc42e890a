"""Blocking work beside the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """As asyncio.to_thread, but nobody waits for the thread once the caller is cancelled, not even the end of the
    program: a run that is told to stop at once does not sit out a check of a minute."""
    loop = asyncio.get_running_loop()
    if (stand_still := getattr(loop, "stand_still", None)) is not None:
        return cast(T, stand_still(function, *args, **kwargs))  # virtual time passes for nobody meanwhile
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if not future.done():
            future.set_result(result) if error is None else future.set_exception(error)

    def work() -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            result = function(*args, **kwargs)
        except BaseException as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody asks any more
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=work, name=getattr(function, "__name__", "work"), daemon=True).start()
    return await future
