"""Each kind of client has its own settings of TLS and SASL, and takes them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

from harness.errors import RuntimeUnavailable
from harness.plan import registry
from harness.targets.security import Security
from harness.targets.security.certificates import Authority

SCRAM = Security("SASL_SSL", "SCRAM-SHA-512", "alice", 'se"cr\\et', ca=Path("/ca.pem"))
CLIENTS = ("librdkafka", "java", "kafka-python", "aiokafka")


def secured(client: str, security: Security) -> Mapping[str, str]:
    found: Mapping[str, str] = registry.make_client(client).secured(security)
    return found


def test_scram_over_tls() -> None:
    assert secured("librdkafka", SCRAM) == {
        "security.protocol": "SASL_SSL", "sasl.mechanisms": "SCRAM-SHA-512", "sasl.username": "alice",
        "sasl.password": 'se"cr\\et', "ssl.ca.location": "/ca.pem", "ssl.endpoint.identification.algorithm": "https",
    }  # fmt: skip
    assert secured("java", SCRAM) == {
        "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="alice" password="se\\"cr\\\\et";',
        "ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca.pem",
        "ssl.endpoint.identification.algorithm": "https",
    }  # fmt: skip
    for client in ("kafka-python", "aiokafka"):
        assert secured(client, SCRAM) == {
            "security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512", "sasl_plain_username": "alice",
            "sasl_plain_password": 'se"cr\\et', "ssl_cafile": "/ca.pem", "ssl_check_hostname": "true",
        }  # fmt: skip


def test_plain_without_tls() -> None:
    plain = Security("SASL_PLAINTEXT", "PLAIN", "alice", "secret")
    assert secured("librdkafka", plain) == {
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "PLAIN", "sasl.username": "alice",
        "sasl.password": "secret",
    }  # fmt: skip
    assert "plain.PlainLoginModule required" in secured("java", plain)["sasl.jaas.config"]
    assert not [name for client in CLIENTS for name in secured(client, plain) if name.startswith("ssl")]


@pytest.fixture
def mutual(tmp_path: Path) -> Security:
    """With a key that has a password, in the form that OpenSSL wrote for long."""
    authority = Authority("test")
    issued = authority.issue("client")
    key = serialization.load_pem_private_key(issued.key, None)
    locked = serialization.BestAvailableEncryption(b"secret")
    (tmp_path / "ca.pem").write_bytes(authority.certificate)
    (tmp_path / "client.pem").write_bytes(issued.certificate)
    (tmp_path / "client.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, locked)
    )
    return Security(
        "SSL", ca=tmp_path / "ca.pem", certificate=tmp_path / "client.pem", key=tmp_path / "client.key",
        key_password="secret", checks_host=False,
    )  # fmt: skip


def test_mutual_tls(mutual: Security) -> None:
    files = {"ca": str(mutual.ca), "certificate": str(mutual.certificate), "key": str(mutual.key)}
    assert secured("librdkafka", mutual) == {
        "security.protocol": "SSL", "ssl.ca.location": files["ca"], "ssl.endpoint.identification.algorithm": "none",
        "ssl.certificate.location": files["certificate"], "ssl.key.location": files["key"],
        "ssl.key.password": "secret",
    }  # fmt: skip
    for client in ("kafka-python", "aiokafka"):
        assert secured(client, mutual) == {
            "security_protocol": "SSL", "ssl_cafile": files["ca"], "ssl_check_hostname": "false",
            "ssl_certfile": files["certificate"], "ssl_keyfile": files["key"], "ssl_password": "secret",
        }  # fmt: skip
    java = secured("java", mutual)
    assert java["ssl.endpoint.identification.algorithm"] == "" and java["ssl.keystore.type"] == "PEM"
    assert java["ssl.keystore.certificate.chain"] == Path(files["certificate"]).read_text()
    assert "BEGIN PRIVATE KEY" in java["ssl.keystore.key"], "it takes PKCS #8 alone"
    assert "ssl.key.password" not in java


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("which", ["scram", "mutual"])
def test_each_client_takes_its_settings_and_says_no_secret(client: str, which: str, mutual: Security) -> None:
    """It is opened with them, against nobody, by its own driver."""
    kind = registry.make_client(client)
    try:
        kind.prepare(lambda _: None)
    except RuntimeUnavailable as error:
        pytest.skip(str(error))
    password = "1234567890"  # as a text, whatever it looks like
    security = Security("SASL_SSL", "SCRAM-SHA-512", "alice", password, ca=mutual.ca) if which == "scram" else mutual
    settings = {**kind.defaults("producer", "127.0.0.1:9", "all"), **kind.secured(security)}
    if client == "kafka-python":
        settings["bootstrap_timeout_ms"] = "500"
    opened: dict[str, Any] = {"do": "open", "client": 0, "role": "producer", "settings": settings}
    command = kind.command(sys.executable)
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, **kind.environment()},
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps(opened) + "\n")
    process.stdin.flush()
    said = process.stdout.readline()
    assert Path(f"/proc/{process.pid}/cmdline").exists() and password not in " ".join(command)
    rest, errors = process.communicate(timeout=60)
    told = json.loads(said)
    if told["is"] == "failed":  # those that connect at once find nobody there, which is all that is wrong
        assert told["error"] in ("KafkaConnectionError", "NoBrokersAvailable", "KafkaTimeoutError"), told
    keys = [Path(str(security.key)).read_text(), settings.get("ssl.keystore.key", "")] if security.key else []
    lines = [line for key in keys for line in key.splitlines() if len(line) > 20]
    assert len(lines) >= 3 * len(keys) - 3
    for secret in (password, "PRIVATE KEY", *lines):
        assert secret not in said + rest + errors
