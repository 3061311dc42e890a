"""What a plan says of the security of its clients: what is valid, and that no secret is told of what is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.cli import app as cli
from harness.errors import BadArguments
from harness.plan import plan_file
from harness.plan.plan import Plan, make_plan
from harness.run.order import Order
from harness.targets.security import Security, given, jaas
from harness.targets.security.certificates import Authority

SECRET = "hunter-2-is-no-word"
SCRAM = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}
TLS = {"security.protocol": "SSL"}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Of a client, as clusters have them."""
    authority = Authority("test")
    issued = authority.issue("client")
    for name, content in (("ca", authority.certificate), ("certificate", issued.certificate), ("key", issued.key)):
        (tmp_path / f"{name}.pem").write_bytes(content)
    return {f"ssl.{name}": str(tmp_path / f"{name}.pem") for name in ("ca", "certificate", "key")}


@pytest.mark.parametrize(
    ("clients", "message"),
    [
        ({"security.protocl": "SSL"}, r"'security.protocl', which is no setting of it \(did you mean security.proto"),
        ({"security.protocol": "TLS"}, "security.protocol=TLS is not possible; valid: PLAINTEXT, SSL, SASL_PLAINTEXT"),
        ({**SCRAM, "sasl.mechanism": "GSSAPI"}, "sasl.mechanism=GSSAPI is not possible; valid: PLAIN, SCRAM-SHA-256"),
        ({"security.protocol": "SASL_SSL"}, "security.protocol=SASL_SSL needs sasl.mechanism too: PLAIN, SCRAM-"),
        ({**TLS, "sasl.mechanism": "PLAIN"}, "sasl.mechanism is of SASL, and security.protocol is SSL; give SASL_"),
        ({"sasl.mechanism": "PLAIN"}, "sasl.mechanism is of SASL, and security.protocol is PLAINTEXT"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "ssl.ca": "x"}, "ssl.ca is of TLS, and"),
        ({**SCRAM, "sasl.username": "alice", "sasl.password": SECRET}, "sasl.password must be env:NAME or file:PATH"),
        ({**SCRAM, "sasl.username": "alice", "sasl.password": "env:"}, "sasl.password must be env:NAME or file:PATH"),
        ({**SCRAM, "sasl.username": "alice"}, "sasl.username needs sasl.password too"),
        ({**SCRAM, "sasl.password": "env:X"}, "sasl.password needs sasl.username too"),
        ({**TLS, "ssl.key.password": SECRET}, "ssl.key.password must be env:NAME or file:PATH"),
        ({**TLS, "ssl.key.password": "env:X"}, "ssl.key.password needs ssl.key too"),
        ({**TLS, "ssl.certificate": "x"}, "ssl.certificate needs ssl.key too"),
        ({**TLS, "ssl.ca": ""}, "ssl.ca is empty; give a PEM file of certificates"),
        ({**TLS, "ssl.client.auth": "requested"}, "ssl.client.auth=requested is not possible; valid: required, none"),
    ],
)
def test_mistakes_in_a_sentence_without_the_secret(
    clients: dict[str, str], message: str
) -> None:
    with pytest.raises(BadArguments, match=message) as told:
        make_plan(run="r", target="kafka:4.2.0", clients=clients)
    assert SECRET not in str(told.value)
    with pytest.raises(ValueError) as raised:  # whoever makes a Plan itself may print what pydantic says
        Plan(run="r", target="kafka:4.2.0", clients=clients)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sasl.password:" + SECRET], "--clients must have the form NAME=VALUE"),
        (["sasl.password=" + SECRET, "sasl.password=" + SECRET], "--clients sasl.password is given twice"),
        (["sasl.pasword=" + SECRET], "did you mean sasl.password?"),
        (["security.protocol=SASL_SSL", "sasl.mechanism=PLAIN", "sasl.username=a", f"sasl.password={SECRET}"],
         "sasl.password must be env:NAME or file:PATH"),
    ],
)  # fmt: skip
def test_a_command_line_with_a_secret_is_refused_and_not_repeated(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = [word for each in arguments for word in ("--clients", each)]
    with pytest.raises(SystemExit) as ended:
        cli.main(["run", "--target", "kafka:4.2.0", "--on", "docker", "--results", str(tmp_path), *words])
    said = capsys.readouterr()
    assert ended.value.code == 254 and message in said.err and SECRET not in said.out + said.err


def test_a_file_with_a_secret_is_refused_and_not_repeated(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    for value in (f'"{SECRET}"', f'["{SECRET}"]', f'{{a = "{SECRET}"}}'):
        path.write_text(
            f'target = "kafka:4.2.0"\n[clients]\n"security.protocol" = "SASL_SSL"\n"sasl.mechanism" = "PLAIN"\n'
            f'"sasl.username" = "a"\n"sasl.password" = {value}\n'
        )
        with pytest.raises(BadArguments) as told:
            make_plan(run="r", **plan_file.read(path))
        assert SECRET not in str(told.value)


def test_a_plan_keeps_references_and_its_command_repeats_them(tmp_path: Path) -> None:
    clients = {**SCRAM, "sasl.username": "alice", "sasl.password": "env:KAFKA_PASSWORD"}
    plan = Plan(run="r", target="kafka:4.2.0", nemesis=("kill",), clients=clients)
    plan_file.save(plan, tmp_path)
    assert Plan(run="r", **plan_file.read(tmp_path / plan_file.PLAN_FILE)) == plan
    words = plan.command().split()
    assert given.parse(words[i + 1] for i, word in enumerate(words) if word == "--clients") == clients
    assert json.loads(plan.model_dump_json())["clients"] == clients


def test_secrets_are_in_the_environment_or_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "password"
    path.write_text(SECRET + "\n")
    monkeypatch.setenv("KAFKA_PASSWORD", SECRET)
    plain = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "alice"}
    for where in ("env:KAFKA_PASSWORD", f"file:{path}"):
        found = given.resolve({**plain, "sasl.password": where})
        assert found == Security("SASL_PLAINTEXT", "PLAIN", "alice", SECRET) and SECRET not in repr(found)
    monkeypatch.chdir(tmp_path)
    assert given.absolute({"sasl.password": "file:password", "sasl.username": "file:x"}) == {
        "sasl.password": f"file:{path}", "sasl.username": "file:x",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("where", "content", "message"),
    [
        ("env:NOT_THERE", None, "the environment has no variable NOT_THERE, or an empty one"),
        ("file:FILE", None, "FILE cannot be read"),
        ("file:FILE", b"", "FILE is empty"),
        ("file:FILE", b"\xff\xfe" + SECRET.encode(), "it is no text"),
        ("file:FILE", f"{SECRET}\n{SECRET}\n".encode(), "is no password: it has control characters"),
        ("file:/dev/null", None, "it is no regular file"),
    ],
)
def test_a_secret_that_is_not_there(tmp_path: Path, where: str, content: bytes | None, message: str) -> None:
    path = tmp_path / "FILE"
    if content is not None:
        path.write_bytes(content)
    clients = {**SCRAM, "sasl.username": "alice", "sasl.password": where.replace("FILE", str(path))}
    with pytest.raises(BadArguments, match=message) as told:
        Order({"target": "kafka:4.2.0", "on": "docker", "clients": clients}, tmp_path, quiet=True).prepared()
    assert SECRET not in str(told.value)


def test_files_of_tls_are_looked_at_before_a_run(files: dict[str, str], tmp_path: Path) -> None:
    assert given.resolve({**TLS, **files}).key == Path(files["ssl.key"])
    with pytest.raises(BadArguments, match=r"ssl.ca: .*certificate.pem.no has no certificates in PEM \(No such file"):
        given.resolve({**TLS, "ssl.ca": files["ssl.certificate"] + ".no"})
    with pytest.raises(BadArguments, match=r"ssl.ca: .*key.pem has no certificates in PEM"):
        given.resolve({**TLS, "ssl.ca": files["ssl.key"]})
    other = tmp_path / "other.pem"
    other.write_bytes(Authority("other").issue("other").key)
    with pytest.raises(BadArguments, match=r"ssl.key: .*other.pem is not the key of .*certificate.pem, or its pass"):
        given.resolve({**TLS, **files, "ssl.key": str(other)})


def test_a_key_may_have_a_password(files: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(Path(files["ssl.key"]).read_bytes(), None)
    locked = serialization.BestAvailableEncryption(SECRET.encode())
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, locked)
    Path(files["ssl.key"]).write_bytes(pem)
    monkeypatch.setenv("KEY_PASSWORD", SECRET)
    assert given.resolve({**TLS, **files, "ssl.key.password": "env:KEY_PASSWORD"}).key_password == SECRET
    monkeypatch.setenv("KEY_PASSWORD", "another")
    for clients in ({**TLS, **files}, {**TLS, **files, "ssl.key.password": "env:KEY_PASSWORD"}):
        with pytest.raises(BadArguments, match="or its password is another"):
            given.resolve(clients)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"target": "kraft"}, "--clients is not possible with target kraft: its brokers have neither TLS nor SASL"),
        ({"target": "v2"}, "--clients is not possible with target v2: its brokers have neither"),
        ({"target": "kraft", "on": "simulation"}, "--clients is not possible with target kraft"),
    ],
)
def test_who_has_none(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(BadArguments, match=message):
        make_plan(run="r", clients=SCRAM, **fields)
    assert make_plan(run="r", clients={"security.protocol": "PLAINTEXT"}, **fields)


@pytest.mark.parametrize("nemesis", ["requests:delay", "requests:repeat:api=Produce"])
def test_a_proxy_cannot_tell_requests_apart_that_it_cannot_read(nemesis: str, tmp_path: Path) -> None:
    fields = {"target": "kafka:4.2.0", "on": "docker", "nemesis": (nemesis,), "clients": SCRAM}
    with pytest.raises(BadArguments, match="its proxy cannot read what TLS has encrypted"):
        Order(fields, tmp_path, quiet=True).prepared()


@pytest.mark.parametrize("name", ["sasl.password", "ssl.key.pem", "security.protocol", "sasl.jaas.config"])
def test_settings_of_a_client_are_no_way_around_it(name: str, tmp_path: Path) -> None:
    order = Order({"client": "librdkafka", "client_settings": {name: SECRET}, "on": "docker"}, tmp_path, quiet=True)
    with pytest.raises(BadArguments, match=f"--client-set {name} is not possible") as told:
        order.prepared()
    assert SECRET not in str(told.value)


def test_a_password_is_quoted_as_java_reads_it() -> None:
    assert jaas("plain.PlainLoginModule", password='a"b\\c').endswith(r'required password="a\"b\\c";')
