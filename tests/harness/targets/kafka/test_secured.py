"""Apache Kafka with TLS and SASL for its clients: how its nodes are told, and that no secret is kept of a run."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets as random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cluster_image.storage.records import encode_int64s
from harness.cli import app as cli
from harness.errors import BadArguments
from harness.plan import registry
from harness.plan.plan import Plan, make_plan
from harness.record.results import read_json
from harness.runtimes.docker import cleanup, engine
from harness.targets.kafka import secrets
from harness.targets.kafka.secrets import ScramUser
from harness.targets.kafka_api.blanking import blank, blanked
from harness.targets.security import Security
from tests.cluster_image.network.test_login import CLIENT_FINAL, CLIENT_FIRST, SERVER_FINAL, SERVER_FIRST
from tests.clusters.secrets_in import found_in
from tests.harness.targets.kafka.test_kafka_target import node, plan, written
from tests.harness.targets.test_contract_of_targets import kafka_to_run

PASSWORD = "env:SECURED_PASSWORD"
SCRAM = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}
PLAIN = {
    "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "alice",
    "sasl.password": PASSWORD,
}  # fmt: skip
MUTUAL = {"security.protocol": "SSL", "ssl.client.auth": "required"}
OURS = "listener.name.clients"


def secured(**clients: str) -> Plan:
    return plan(clients=clients)


def test_clients_have_a_listener_of_their_own() -> None:
    broker = written(node(), secured(**SCRAM))
    assert broker["listeners"] == "CLIENTS://10.0.0.1:9092,BROKERS://10.0.0.1:9094"
    assert broker["listener.security.protocol.map"] == "CLIENTS:SASL_SSL,BROKERS:PLAINTEXT,CONTROLLER:PLAINTEXT"
    assert broker["inter.broker.listener.name"] == "BROKERS"
    assert broker[f"{OURS}.sasl.enabled.mechanisms"] == "SCRAM-SHA-512"
    assert broker[f"{OURS}.ssl.keystore.location"] == "/secrets/broker.pem"
    assert broker[f"{OURS}.ssl.client.auth"] == "none" and f"{OURS}.ssl.truststore.location" not in broker
    both = written(node(combined=True), plan(clients=SCRAM, combined=True))
    assert both["listeners"].endswith(",CONTROLLER://10.0.0.1:9093")
    assert written(node("controller"), secured(**SCRAM)) == written(node("controller"), plan())


def test_a_broker_may_want_certificates_of_clients() -> None:
    broker = written(node(), secured(**MUTUAL))
    assert broker[f"{OURS}.ssl.client.auth"] == "required"
    assert broker[f"{OURS}.ssl.truststore.location"] == "/secrets/ca.pem"
    assert not [name for name in broker if "sasl" in name]


def test_a_password_of_plain_is_a_reference_in_what_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SECURED_PASSWORD", 'se"cret')
    broker = written(node(), secured(**PLAIN))
    assert broker[f"{OURS}.plain.sasl.jaas.config"] == "${secrets:/secrets:plain.jaas}"
    assert not [value for value in broker.values() if 'se"cret' in value or "se\\" in value]
    issued = secrets.issue(secured(**PLAIN), [node()], tmp_path)
    jaas = (issued.folders["broker-1"] / "plain.jaas").read_text()
    assert jaas == 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="se\\"cret";'


def test_what_is_issued_is_in_one_folder_and_clients_use_it(tmp_path: Path) -> None:
    nodes = [node(), node("controller")]
    issued = secrets.issue(plan(clients={**SCRAM, "ssl.client.auth": "required"}), nodes, tmp_path)
    clients = issued.clients
    assert clients.username.startswith("chaos-") and len(clients.password) == 32 and clients.ca == tmp_path / "ca.pem"
    assert {path.name for path in issued.folders["broker-1"].iterdir()} == {"broker.pem", "ca.pem"}
    assert {path.name for path in issued.folders["controller-1"].iterdir()} == {"format.arguments"}
    assert clients.key is not None and clients.key.stat().st_mode & 0o777 == 0o600
    again = secrets.issue(plan(clients=SCRAM), nodes, _folder(tmp_path / "again")).clients
    assert again.password != clients.password and again.username != clients.username


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def test_a_user_of_scram_is_as_the_rfc_has_it() -> None:
    """RFC 7677, section 3: from the keys that a server stores follow the proof that it is sent, and its signature."""
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    user = ScramUser.of(Security("SASL_SSL", "SCRAM-SHA-256", "user", "pencil"), salt)
    _, stored, server = user.traces
    said = f"{CLIENT_FIRST[3:]},{SERVER_FIRST},{CLIENT_FINAL.partition(',p=')[0]}".encode()
    assert "v=" + base64.b64encode(hmac.digest(server, said, "sha256")).decode() == SERVER_FINAL
    proof = base64.b64decode(CLIENT_FINAL.partition(",p=")[2])
    signature = hmac.digest(stored, said, "sha256")
    assert hashlib.sha256(bytes(a ^ b for a, b in zip(proof, signature, strict=True))).digest() == stored
    assert user.format_arguments.startswith('--add-scram "SCRAM-SHA-256=[name=user,salt=\\"W22ZaJ0SNY7soEsUEjb6gQ==')


@pytest.mark.parametrize(
    ("clients", "settings", "message"),
    [
        ({**SCRAM, "ssl.ca": "/x"}, {}, "ssl.ca is not possible here: the harness makes the certificates of each run"),
        ({**PLAIN, "sasl.username": "al ice"}, {}, "a user that the harness makes has letters, digits"),
        ({**PLAIN, "sasl.username": "älice"}, {}, "a user that the harness makes has letters, digits"),
        (SCRAM, {"ssl.keystore.password": "x"}, "--set ssl.keystore.password would contradict --clients"),
        (SCRAM, {"inter.broker.listener.name": "x"}, "--set inter.broker.listener.name would contradict --clients"),
    ],
)
def test_what_the_harness_makes_itself_is_not_given(
    clients: dict[str, str], settings: dict[str, str], message: str
) -> None:
    with pytest.raises(BadArguments, match=message):
        make_plan(run="r", target="kafka:4.2.0", clients=clients, settings=settings)


@pytest.mark.parametrize("has_security", [True, False])
def test_a_described_target_is_told_by_a_variable(tmp_path: Path, has_security: bool) -> None:
    path = tmp_path / "mine.toml"
    properties = "node.id={{ id }}\\nlisteners={{ listeners }}\\n" + "{{ security }}\\n" * has_security
    path.write_text(
        f'summary = "s"\nimage = "our/kafka:1"\nproperties = "{properties}"\ncommand = "run"\n'
        '[promise]\nsentence = "s"\nlossy_shutdowns = 1\nsource = "s"\n'
    )
    target = registry.make_target(str(path))
    if not has_security:
        with pytest.raises(BadArguments, match=r"have no \{\{ security \}\}, by which its nodes would be told"):
            make_plan(run="r", target=str(path), clients=SCRAM)
        own = make_plan(run="r", target=str(path), clients={"security.protocol": "SSL", "ssl.ca": "/ca.pem"})
        assert "listeners=PLAINTEXT://" in target.configurations(own, [node()], "c")["broker-1"]
        with pytest.raises(BadArguments, match=r"users of its own; give sasl.username and sasl.password too"):
            make_plan(run="r", target=str(path), clients={**SCRAM, "ssl.ca": "/ca.pem"})
        return
    text = target.configurations(make_plan(run="r", target=str(path), clients=SCRAM), [node()], "c")["broker-1"]
    assert "listeners=CLIENTS://10.0.0.1:9092,BROKERS://10.0.0.1:9094\nlistener.security.protocol.map=CLIENTS" in text
    assert target.renumbered(text, 1, "") == text
    assert "security.protocol" not in target.configurations(plan(str(path)), [node()], "c")["broker-1"]


def _batches(*values: Sequence[int]) -> bytes:
    return b"".join(encode_int64s(each, timestamp_ms=1) for each in values)


def test_a_copy_of_a_disk_is_whole_without_the_secret(tmp_path: Path) -> None:
    value = int.from_bytes(random.token_bytes(8), signed=True)
    secret = value.to_bytes(8, signed=True)
    content = _batches([1, 2], [3, value, 4], [5])
    found = blanked(content, [secret])
    assert secret not in found and len(found) == len(content)
    assert found == _batches([1, 2], [3, 0, 4], [5]), "its checksum too is that of what is there now"
    torn = content[:-7]
    assert blanked(torn, [secret])[: len(_batches([1, 2], [3, 0, 4]))] == _batches([1, 2], [3, 0, 4])
    damaged = bytearray(content)
    damaged[20] ^= 1  # of a checksum
    assert blanked(bytes(damaged), [secret])[17:21] == bytes(damaged[17:21]), "what was damaged stays so"
    log = tmp_path / "kafka" / "__cluster_metadata-0" / "00000000000000000000.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(content)
    (tmp_path / "kafka" / "bootstrap.checkpoint").write_bytes(content)
    blank(tmp_path, [secret])
    assert found_in(tmp_path, {"the key": secret}) == []


@pytest.mark.docker
@pytest.mark.timeout(600)
@pytest.mark.skipif(not kafka_to_run(), reason="no Kafka, and no Maven client")
@pytest.mark.parametrize("client", ["kio", pytest.param("librdkafka", marks=pytest.mark.nightly)])
def test_nothing_is_lost_under_kill_and_no_secret_is_kept(
    client: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    password = f"pw-{random.token_urlsafe(18)}"
    monkeypatch.setenv("SECURED_PASSWORD", password)
    wanted: dict[str, bytes] = {"the password": password.encode()}
    issue = secrets.issue

    def watched(of: Any, nodes: Any, folder: Path) -> Any:
        issued = issue(of, nodes, folder)
        for number, path in enumerate(folder.rglob("broker.pem")):
            wanted[f"private key {number}"] = path.read_bytes().splitlines()[1]
        wanted["the salted password"] = base64.b64decode(
            next(folder.rglob("format.arguments")).read_text().partition('saltedpassword=\\"')[2].partition("\\")[0]
        )
        return issued

    def of(clients: Security, salt: bytes | None = None) -> ScramUser:
        user = made(clients, salt)
        wanted.update(zip(("the salt", "the stored key", "the server key"), user.traces, strict=True))
        return user

    made = ScramUser.of
    monkeypatch.setattr(ScramUser, "of", of)
    monkeypatch.setattr(secrets, "issue", watched)
    words = [*SCRAM.items(), ("sasl.username", "alice"), ("sasl.password", PASSWORD)]
    with pytest.raises(SystemExit) as ended:
        cli.main([
            "run", "--target", "kafka:4.2.0", "--client", client, "--nemesis", "kill", "--time-limit", "25",
            "--seed", "1", "--partitions", "2", "--rate", "300", "--run-name", f"secured-{client}",
            "--results", str(tmp_path),
            *(word for name, value in words for word in ("--clients", f"{name}={value}")),
        ])  # fmt: skip
    said = capfd.readouterr()
    assert ended.value.code == 0, said.out + said.err
    run = tmp_path / f"secured-{client}"
    verdict = read_json(run / "verdict.json")
    assert verdict["verdict"] == "pass" and verdict["faults"]["kill"]["effective"]
    assert len(wanted) == 8, sorted(wanted)
    assert found_in(run, wanted) == [] and password not in said.out + said.err
    assert f"secured-{client}" not in cleanup.runs(engine.connect()), "nor are secrets left elsewhere"
