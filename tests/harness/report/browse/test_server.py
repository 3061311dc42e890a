"""What `chaos serve` answers, and what it does not."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from harness.record.catalog.notes import write_note
from harness.report.browse.paths import open_below
from harness.report.browse.server import OWN_POLICY, chunks, is_loopback
from tests.harness.record.catalog import made
from tests.harness.report.browse.serving import Client, served

SECRET = "not for you"
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>\u202egnp\x1b[2J\u2066"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text(SECRET)
    made.run(tmp_path / "results", "a", "fail")
    made.run(tmp_path / "results", "b", "pass", seed=2, started=made.BEGIN + timedelta(hours=1))
    return tmp_path / "results"


@pytest.fixture
def asked(results: Path) -> Iterator[Client]:
    with served(results) as found:
        yield found


def test_only_get_and_head_are_answered(asked: Client) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"):
        for path in ("/", "/run/a", "/files/a/report.html", "/nothing"):
            answer = asked.get(path, method=method)
            assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
    answer = asked.get("/files/a/plan.json", method="HEAD")
    assert answer.status == 200 and int(answer.headers["content-length"]) > 100 and not answer.content
    assert asked.get("/", method="HEAD").status == 200


def test_every_answer_keeps_a_browser_in_bounds(asked: Client) -> None:
    for path in ("/", "/run/a", "/compare?run=a&run=b", "/trends", "/nothing", "/run/nothing", "/files/", "/files/a"):
        answer = asked.get(path)
        assert answer.headers["content-security-policy"] == OWN_POLICY, path
        assert "unsafe" not in OWN_POLICY and OWN_POLICY.startswith("default-src 'none'")
        assert re.findall(r"<(?:script|style)(?![^>]* src=)|\son\w+=|\sstyle=", answer.text) == []
    for path in ("/", "/files/a/plan.json", "/assets/browse.css", "/nothing"):
        headers = asked.get(path).headers
        assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"
        assert headers["x-frame-options"] == "DENY" and "server" not in headers


def test_a_report_is_shown_in_a_sandbox_and_nothing_else_as_a_page(results: Path, asked: Client) -> None:
    answer = asked.get("/files/a/report.html")
    assert answer.headers["content-type"].startswith("text/html") and "report of" in answer.text
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("sandbox ") and "allow-same-origin" not in policy and "connect-src" not in policy
    for name in ("logs.html", "evil.svg", "x.htm", "x.xhtml", "x.js", "x.parquet", "plan.toml", "y.log", "noname"):
        (results / "a" / name).write_text("<script>alert(1)</script>")
        answer = asked.get(f"/files/a/{name}")
        assert answer.headers["content-type"].split(";")[0] in ("text/plain", "application/octet-stream"), name
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")


OUT = (
    "/files/../secret", "/files/%2e%2e/secret", "/files/..%2fsecret", "/files/a/../../secret",
    "/files/a%2f..%2f..%2fsecret", "/files//etc/passwd", "/files/%2fetc%2fpasswd", "/files/..\\secret",
    "/files/a/..%5c..%5csecret", "/files/%00", "/files/a/out", "/files/a/out/secret", "/files/a/up/secret",
    "/files/a/pipe", "/files/a/socket", "/files/out/secret", "/files/a/loop", "/files/.index.sqlite",
    "/files/a/.reserve", "/files/a/nothing", "/run/../secret", "/run/out", "/files/%252e%252e/secret",
    "/files/%c0%ae%c0%ae/secret", "/files/" + "a/" * 3000, "/assets/../server.py", "/assets/%2e%2e%2fserver.py",
    "/assets/list.html.j2", "/live/..%2f..%2fsecret",
)  # fmt: skip


def test_no_path_leads_out(results: Path) -> None:
    run, above = results / "a", results.parent
    (run / "out").symlink_to(above / "secret")
    (run / "up").symlink_to(above)
    (results / "out").symlink_to(above)
    (run / "loop").symlink_to(run / "loop")
    os.mkfifo(run / "pipe")
    (run / ".reserve").write_text(SECRET)
    with socket.socket(socket.AF_UNIX) as listening, served(results) as asked:
        listening.bind(os.path.relpath(run / "socket"))
        for path in OUT:
            answer = asked.get(path)
            assert answer.status in (404, 400), path
            assert SECRET not in answer.text and "root:" not in answer.text, path


def test_links_that_stay_inside_are_followed(results: Path, asked: Client) -> None:
    (results / "a" / "again.json").symlink_to(results / "b" / "plan.json")
    assert asked.get("/files/a/again.json").json()["seed"] == 2


def test_what_may_not_be_read_is_told_and_nothing_breaks(results: Path, asked: Client, monkeypatch: Any) -> None:
    real = os.open

    def refuse(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        if path == "verdict.json":
            raise PermissionError(13, "Permission denied")
        return real(path, flags, *rest, **named)

    monkeypatch.setattr(os, "open", refuse)
    answer = asked.get("/files/a/verdict.json")
    assert answer.status == 404 and "may not be read" in answer.text


def test_a_file_that_grows_meanwhile_is_sent_as_long_as_was_said(results: Path) -> None:
    path = results / "a" / "grows.log"
    path.write_text("0123456789")
    descriptor = open_below(results, "a/grows.log")
    path.write_text("0123456789 and more")
    file = os.fdopen(descriptor, "rb")
    assert b"".join(chunks(file, 10)) == b"0123456789" and file.closed


def test_another_name_for_this_machine_is_refused_on_loopback(asked: Client) -> None:
    for host in ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "10.0.0.5", "", "[::2]:80"]:
        answer = asked.get("/", host=host)
        assert answer.status == 421 and "report" not in answer.text


def test_its_own_names_are_answered(asked: Client) -> None:
    for host in ["127.0.0.1", "localhost:8080", "LOCALHOST", "[::1]:8080", "127.0.0.1:8080"]:
        assert asked.get("/", host=host).status == 200


def test_who_serves_others_is_asked_by_any_name(results: Path) -> None:
    with served(results, "0.0.0.0") as asked:
        assert asked.get("/", host="ci.example.org").status == 200
    assert is_loopback("127.9.9.9") and is_loopback("::1") and not is_loopback("0.0.0.0") and not is_loopback("::")


def test_hostile_names_are_text_everywhere(results: Path) -> None:
    name = HOSTILE.replace("/", "") + "x" * 80
    run = made.run(results, name, "fail", nemesis=("kill",), settings={HOSTILE: HOSTILE * 300},
                   record={"command": HOSTILE, "problems": [HOSTILE * 200]})  # fmt: skip
    write_note(run, f"javascript:alert(1) https://a.example/{HOSTILE} {HOSTILE}")
    (run / HOSTILE.replace("/", "")).write_text("")
    verdict = json.loads((run / "verdict.json").read_text())
    verdict |= {
        "reason": HOSTILE * 300,
        "faults": {HOSTILE: {HOSTILE: HOSTILE}},
        "anomalies": {HOSTILE: {"anomalies": {HOSTILE: 1}}},
    }
    (run / "verdict.json").write_text(json.dumps(verdict))
    suite = made.suite(results, "s", made.BEGIN, {HOSTILE: "pass"})
    said = json.loads((suite / "suite.json").read_text())
    (suite / "suite.json").write_text(json.dumps(said | {"suite": HOSTILE}))
    with served(results) as asked:
        quoted = {"run": [name, "a"]}
        for answer in (
            asked.get("/"), asked.get("/", {"q": HOSTILE, "nemesis": HOSTILE, "seed": HOSTILE}),
            asked.get(f"/run/{name}"),
            asked.get("/compare", quoted), asked.get("/compare", {"run": [HOSTILE, HOSTILE]}),
            asked.get("/trends"), asked.get("/trends", {"suite": HOSTILE}),
            asked.get("/trends", {"suite": HOSTILE, "plan": HOSTILE}), asked.get(f"/run/{suite.name}"),
            asked.get(f"/files/{name}"),
        ):  # fmt: skip
            assert answer.status in (200, 400), answer.text[:300]
            text = answer.text
            assert "<script>alert" not in text and "<img" not in text and 'href="javascript' not in text
            assert not re.search("[\x1b\u202e\u2066]", re.sub(r'(?:value|href)="[^"]*"', "", text))
            assert len(text) < 200_000


def test_filters_pages_and_searches(results: Path) -> None:
    made.many(results, 120, faults=1)
    with served(results) as asked:
        assert "1 to 50 of 122" in asked.get("/").text and "101 to 122 of 122" in asked.get("/?page=3").text
        assert "There are 3 pages, and not 4" in asked.get("/?page=4").text
        assert asked.get("/?page=-1").status == asked.get("/?page=" + "9" * 500).status == 200
        found = asked.get("/?seed=100..104").text
        assert found.count('<th scope="row">') == 5
        wrong = asked.get("/?seed=x")
        assert wrong.status == 400 and "neither a number nor a range" in wrong.text
        assert "Nothing fits" in asked.get("/?q=zzzzz").text
        assert asked.get("/?nemesis=partition").text.count("partition:one-way</bdi>") == 24


def test_a_run_that_is_new_is_seen_at_once(results: Path, asked: Client) -> None:
    made.run(results, "brand-new", started=made.BEGIN + timedelta(days=1))
    assert "brand-new" in asked.get("/").text and asked.get("/run/brand-new").status == 200


def test_two_runs_side_by_side(asked: Client) -> None:
    text = asked.get("/compare?run=a&run=b").text
    assert re.search(r'class="differs">.*?<bdi>verdict</bdi>.*?<bdi>fail</bdi>.*?<bdi>pass</bdi>', text, re.DOTALL)
    assert (
        "give two" in asked.get("/compare?run=a").text
        and "3 are ticked" in asked.get("/compare?run=a&run=b&run=c").text
    )
    assert "There is no run &#39;zzz&#39; here" in asked.get("/compare?run=a&run=zzz").text


def test_a_damaged_run_has_a_page(results: Path) -> None:
    contents = (
        b"", b"[1]", b'{"plan": 1, "phases": [], "faults": {"kill": 3}, "problems": 4}',
        b'{"availability": {"windows": [{"recovery": 3}, 4]}, "operations": {"a ok": "x"}}',
    )  # fmt: skip
    for number, content in enumerate(contents):
        run = results / f"damaged-{number}"
        run.mkdir()
        for name in ("plan.json", "run.json", "verdict.json"):
            (run / name).write_bytes(content)
        (results / f"group-{number}").mkdir()
        (results / f"group-{number}" / ("suite.json", "explore.json", "matrix.json")[number % 3]).write_bytes(content)
    with served(results) as asked:
        for number in range(4):
            assert asked.get(f"/run/damaged-{number}").status == 200
            assert asked.get(f"/run/group-{number}").status == 200
            assert asked.get(f"/compare?run=damaged-{number}&run=a").status == 200
        assert asked.get("/").status == 200
