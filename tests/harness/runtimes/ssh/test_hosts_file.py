from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import BadArguments
from harness.runtimes.ssh.hosts_file import Host, Service, read


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "home" / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def write(folder: Path, text: str) -> Path:
    (folder / "hosts.toml").write_text(text)
    return folder / "hosts.toml"


def test_a_host_needs_no_more_than_its_name(tmp_path: Path) -> None:
    found = read(write(tmp_path, "[hosts.a]\n"))
    assert found.hosts == (Host("a", "a", "a", rack="a"),)
    assert (found.service, found.rescue_after_s) == (None, 60.0)


def test_hosts_override_what_is_given_for_all(tmp_path: Path, home: Path) -> None:
    (tmp_path / "key").touch()
    (home / ".ssh" / "config").write_text("Host b\n HostName b.example.com\n")
    path = write(
        tmp_path,
        """
        rescue_after_s = 30
        [defaults]
        user = "admin"
        key = "key"
        roles = ["broker"]
        sudo_password = "file:secret"
        [hosts.a]
        address = "10.0.0.1"
        node_address = "192.168.0.1"
        port = 2222
        node_id = 7
        rack = "r1"
        [hosts.b]
        user = "root"
        sudo_password = ""
        roles = "controller"
        device = "/dev/vdb"
        may_destroy_data = true
        """,
    )
    found = read(path)
    a, b = found.hosts
    assert (a.user, a.key, a.port, a.node_id, a.node_address) == ("admin", tmp_path / "key", 2222, 7, "192.168.0.1")
    assert a.sudo_password == f"file:{tmp_path / 'secret'}"
    assert (b.user, b.sudo_password, b.roles, b.device) == ("root", "", frozenset({"controller"}), "/dev/vdb")
    assert (b.address, b.node_address) == ("b", "b.example.com")
    assert (a.may_destroy_data, b.may_destroy_data, found.rescue_after_s) == (False, True, 30.0)


@pytest.mark.parametrize(
    ("text", "service"),
    [
        ('unit = "kafka"\ncontroller_port = 9093', Service("/d/k", 9093, unit="kafka.service")),
        (
            'start = "run \'a b\'"\nstop = ["stop", "it"]\npid_file = "/run/k"\nport = 19092\ncontroller_port = 19093',
            Service("/d/k", 19093, "", ("run", "a b"), ("stop", "it"), "/run/k", 19092),
        ),
    ],
)
def test_a_service_is_a_unit_or_commands(text: str, service: Service, tmp_path: Path) -> None:
    path = write(tmp_path, f'[hosts.a]\n[service]\ndata_directory = "/d/k"\n{text}\n')
    assert read(path).service == service


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no host; add a table [hosts.NAME] for each"),
        ("hosts = 3", "hosts must be tables"),
        ("hosts.a = 3", "hosts must be tables"),
        ("[hosts", "cannot be read"),
        ("[host.a]", "has 'host', which is no setting of it (did you mean hosts?); there are defaults, hosts"),
        ("[hosts.a]\nadress = 'x'", "[hosts.a] has 'adress', which is no setting of it (did you mean address?)"),
        ("[hosts.a.b]\n", 'a name with dots is quoted: [hosts."a.b"]'),
        ('[hosts."-a"]', "cannot be a host's name"),
        ("[hosts.a]\nport = '22'", "[hosts.a]: port must be a number from 1 to 65535"),
        ("[hosts.a]\nport = true", "port must be a number"),
        ("[hosts.a]\nport = 65536", "port must be a number"),
        ("[hosts.a]\nsudo = 1", "sudo must be true or false"),
        ("[hosts.a]\naddress = '-oProxyCommand=x'", "address must be one word"),
        ("[hosts.a]\nkey = 'nowhere'", "key must be a file of this machine"),
        ("[hosts.a]\nroles = ['leader']", "roles must be a list of broker and controller"),
        ("[hosts.a]\nroles = []", "roles must be a list of broker and controller"),
        ("[hosts.a]\ndata_directory = '/var'", "data_directory must be an absolute path of the host at least"),
        ("[hosts.a]\ndata_directory = '/var/../etc'", "data_directory must be an absolute path"),
        ("[hosts.a]\ninstall_directory = 'opt/chaos'", "install_directory must be an absolute path"),
        ("[hosts.a]\ndata_directory = '/opt/chaos-hosts/data'", "must not lie in one another"),
        ("[hosts.a]\ndevice = 'vdb'", "device must be"),
        ("[hosts.a]\nnode_id = -1", "node_id must be a number"),
        ("[hosts.a]\nfingerprint = 'MD5:00'", "fingerprint must be one as `ssh-keygen -l` shows it"),
        ("[hosts.a]\nkey_password = 'env:A'", "key_password needs key too"),
        ("[hosts.a]\nsudo = false\nsudo_password = 'env:A'", "sudo_password is of sudo"),
        ("defaults = 3\n[hosts.a]", "defaults must be a table"),
        ("[defaults]\nnode_id = 3\n[hosts.a]", "node_id is a host's own"),
        ("[hosts.a]\naddress = 'x'\n[hosts.b]\naddress = 'x'", "hosts a and b have the same address x"),
        ("[hosts.a]\nnode_address = 'x'\n[hosts.b]\nnode_address = 'x'", "have the same node_address x"),
        ("[hosts.a]\nnode_id = 1\n[hosts.b]\nnode_id = 1", "have the same node_id 1"),
        ("rescue_after_s = 4\n[hosts.a]", "rescue_after_s must be a number of seconds from 5 to 3600"),
        ("rescue_after_s = nan\n[hosts.a]", "rescue_after_s must be"),
        ("service = 3\n[hosts.a]", "service must be a table"),
        ("[hosts.a]\n[service]\ndata_directory = '/d'", "[service] has neither; give either unit"),
        ("[hosts.a]\n[service]\nstart = 'x'", "start needs stop too"),
        ("[hosts.a]\n[service]\nunit = 'k'", "[service] needs data_directory"),
        ("[hosts.a]\n[service]\nunit = 'k'\ndata_directory = '/d'", "[service] has no controller_port: where do"),
        ("[hosts.a]\n[service]\nunit = 'k'\nstart = 'x'\nstop = 'y'", "has both a unit and commands"),
        ("[hosts.a]\n[service]\nunit = 'k; x'", "unit must be"),
        ("[hosts.a]\n[service]\nunit = 'k'\npid_file = '/x'", "pid_file goes with start and stop"),
        ("[hosts.a]\n[service]\nstart = \"'\"\nstop = 'y'", "start must be a command"),
        ("[hosts.a]\n[service]\nunit = 'k'\ndata_directory = '/d'\ncontroller_port = 9092", "are both 9092"),
    ],
)
def test_each_mistake_has_a_sentence(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(BadArguments) as refused:
        read(write(tmp_path, text))
    assert said in str(refused.value)
    assert str(refused.value).startswith("--hosts ")


@pytest.mark.parametrize("name", ["password", "key_password", "sudo_password", "passwd", "pasword"])
@pytest.mark.parametrize("value", ['"s3cret"', '["s3cret"]', '"env:"'])
@pytest.mark.parametrize("table", ["defaults", "hosts.a", "service"])
def test_a_secret_that_is_written_out_is_refused_and_not_repeated(
    name: str, value: str, table: str, tmp_path: Path
) -> None:
    hosts = "" if table == "hosts.a" else "[hosts.a]\n"
    with pytest.raises(BadArguments) as refused:
        read(write(tmp_path, f"[{table}]\n{name} = {value}\n{hosts}"))
    assert "s3cret" not in str(refused.value)


def test_a_configuration_of_ssh_that_cannot_be_understood_is_said(tmp_path: Path, home: Path) -> None:
    (home / ".ssh" / "config").write_text("Host a\n Port no\n")
    with pytest.raises(BadArguments, match="cannot be understood"):
        read(write(tmp_path, "[hosts.a]\n"))


def test_there_is_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(BadArguments, match="does not exist"):
        read(tmp_path / "hosts.toml")
