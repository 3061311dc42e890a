from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.errors import BadArguments
from harness.record.catalog.notes import MOST_BYTES, NOTE_FILE, linked, read_note, write_note


def test_a_note_is_kept_replaced_and_removed(tmp_path: Path) -> None:
    assert read_note(tmp_path) == ""
    write_note(tmp_path, " see https://example.org/1 \n")
    assert read_note(tmp_path) == "see https://example.org/1"
    write_note(tmp_path, "ανοιχτό")
    assert read_note(tmp_path) == "ανοιχτό"
    write_note(tmp_path, "  ")
    assert read_note(tmp_path) == "" and list(tmp_path.iterdir()) == []
    write_note(tmp_path, "")  # of none


def test_one_that_is_too_long_loses_nothing(tmp_path: Path) -> None:
    write_note(tmp_path, "before")
    with pytest.raises(BadArguments, match="the most is 16,384"):
        write_note(tmp_path, "x" * MOST_BYTES)
    assert read_note(tmp_path) == "before"


def test_a_link_in_its_place_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    run = tmp_path / "run"
    run.mkdir()
    (run / NOTE_FILE).symlink_to(tmp_path / "precious")
    write_note(run, "note")
    assert (tmp_path / "precious").read_text() == "precious" and read_note(run) == "note"
    os.unlink(run / NOTE_FILE)
    os.mkfifo(run / NOTE_FILE)
    assert read_note(run) == ""  # and does not wait


@pytest.mark.parametrize(
    ("text", "links"),
    [
        ("see https://example.org/1.", ["https://example.org/1"]),
        ("(http://a/b?c=d#e), HTTPS://X/", ["http://a/b?c=d#e", "HTTPS://X/"]),
        ("javascript:alert(1) file:///etc/passwd data:text/html,x", []),
        ("<a href='https://a/'>https://b/</a>", ["https://a/", "https://b/"]),
        ("", []),
    ],
)
def test_only_web_addresses_become_links(text: str, links: list[str]) -> None:
    pieces = list(linked(text))
    assert [address for _, address in pieces if address] == links
    assert "".join(piece for piece, _ in pieces) == text
