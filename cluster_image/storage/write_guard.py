"""What a failed write means for a log: that it takes no more."""

from __future__ import annotations

from collections.abc import Callable

from .errors import StorageError


def is_final(error: OSError) -> bool:
    """Is a failed write or sync the last of its log, and of the process, which does not handle a StorageError? Whatever
    the error: a part of what was to be written may lie at the log's end, where the next would follow on it, and a sync
    that is tried again may succeed without having written anything (KAFKA-10778)."""
    return True


class WriteGuard:
    """A context in which the first OSError is final: it and every later entry raise StorageError.

    What a failed write or sync has left on disk is not known, and a sync that is tried again may succeed without
    having written anything. before: is done once, at the first entry.
    """

    def __init__(self, directory: str, before: Callable[[], None] | None = None) -> None:
        self._directory = directory
        self._before = before
        self._failure: OSError | None = None

    @property
    def entered(self) -> bool:
        return self._before is None

    @property
    def refuses(self) -> bool:
        return self._failure is not None

    def refuse(self, reason: OSError) -> None:
        self._failure = self._failure or reason

    def __enter__(self) -> None:
        if self._failure is not None:
            raise StorageError(f"{self._directory} takes no more writes: {self._failure}") from self._failure
        before, self._before = self._before, None
        if before is not None:
            try:
                before()
            except OSError as error:
                self.__exit__(None, error, None)
                raise

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, OSError) and self._failure is None and is_final(error):
            self._failure = error
            raise StorageError(f"writing to {self._directory} failed: {error}") from error
