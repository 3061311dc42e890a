"""Whether secrets are in what is kept of a run."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow.parquet

#: Of any private key in PEM, by its head: RFC 7468.
KEY_HEADS = (b"BEGIN PRIVATE KEY", b"BEGIN ENCRYPTED PRIVATE KEY", b"BEGIN EC PRIVATE KEY", b"BEGIN RSA PRIVATE KEY")


def found_in(directory: Path, secrets: Mapping[str, bytes]) -> list[str]:
    """Which of the secrets, by name, is in which file below the directory: in its bytes as they are, in base64, in hex;
    in what a compressed table holds too. Private keys in PEM, whosever, are looked for as well."""
    wanted = {name: [value, base64.b64encode(value), value.hex().encode()] for name, value in secrets.items()}
    wanted["a private key"] = list(KEY_HEADS)
    files = [path for path in directory.rglob("*") if path.is_file()]
    assert files, directory
    return [
        f"{name} in {path.relative_to(directory)}"
        for path in files
        for content in _contents(path)
        for name, forms in wanted.items()
        if any(form in content for form in forms)
    ]


def _contents(path: Path) -> Iterator[bytes]:
    yield path.read_bytes()
    if path.suffix == ".parquet":
        yield repr(pyarrow.parquet.ParquetFile(path).read().to_pydict()).encode()
