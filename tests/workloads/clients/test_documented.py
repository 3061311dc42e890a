"""docs/clients.md says of each client what its tables say."""

from __future__ import annotations

import re

from harness.plan import registry
from tests import ROOT
from workloads.clients.driven.kind import Kind
from workloads.clients.driven.outcomes import OF_ALL
from workloads.consumer_group import ConsumerGroupWorkload

DOCUMENT = ROOT / "docs" / "clients.md"
MARKED = re.compile(r"<!-- meanings -->\n(.*?)<!-- end -->", re.DOTALL)


def table() -> str:
    rows = ["| client | error | when | means | because |", "| --- | --- | --- | --- | --- |"]
    for client in registry.clients():
        if isinstance(client, Kind):
            rows += [f"| {client.name} | `{e.error}` | {e.when} | `{e.outcome}` | {e.why} |" for e in client.meanings]
    rows += [f"| all | `{e.error}` | {e.when} | `{e.outcome}` | {e.why} |" for e in OF_ALL]
    return "\n".join(rows) + "\n"


def test_the_tables_of_errors_are_in_the_documentation() -> None:
    """To write them anew: python -m tests.workloads.clients.test_documented."""
    found = MARKED.search(DOCUMENT.read_text())
    assert found is not None and found[1] == table()


def test_every_setting_of_the_workload_is_in_the_documentation() -> None:
    text = DOCUMENT.read_text()
    for name, setting in ConsumerGroupWorkload.settings.items():
        assert f"| `{name}` | {'`' * (not setting.default.isdecimal())}{setting.default}" in text, name


if __name__ == "__main__":
    DOCUMENT.write_text(MARKED.sub(f"<!-- meanings -->\n{table()}<!-- end -->", DOCUMENT.read_text()))
