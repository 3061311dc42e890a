"""What is raised when a property does not hold."""

from __future__ import annotations

from collections.abc import Iterable


class Violated(Exception):
    """property: a name of the table in checkers/inside/kraft/simulated/__init__.py. where: "topic-0", or "" for the
    metadata quorum. message: a sentence with the numbers that a person needs. nodes: those at fault, by name."""

    def __init__(self, property_: str, message: str, where: str = "", nodes: Iterable[str] = ()) -> None:
        self.property = property_
        self.message = message
        self.where = where
        self.nodes = tuple(nodes)
        super().__init__(f"{property_}{f' on {where}' if where else ''}: {message}")
