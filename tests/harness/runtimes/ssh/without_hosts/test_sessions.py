"""Sessions against a server in this process: whose key is trusted, who is let in, what is said of what goes wrong."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import paramiko
import pytest

from harness.runtimes.ssh.connection.sessions import (
    HostRefused,
    HostUnreachable,
    NotOnAll,
    Session,
    on_all,
    together,
)

from ..ssh_server import SshServer


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of nobody: no key, no agent, no configuration."""
    (tmp_path / "home" / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return tmp_path / "home"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SshServer]:
    with SshServer(tmp_path) as running:
        yield running


def known(server: SshServer, key: paramiko.PKey | None = None, name: str = "") -> str:
    key = key or server.host_key
    return f"{name or f'[127.0.0.1]:{server.port}'} {key.get_name()} {key.get_base64()}\n"


def test_a_command_gets_its_words_and_input_and_gives_output_errors_and_status(server: SshServer) -> None:
    with Session(server.host()) as session:
        found = session.run(
            ["sh", "-c", 'cat; printf "%s|" "$@"; echo no >&2; exit 3', "-", "a b", "$c", "'"], input=b"x"
        )
        assert (found.status, found.out, found.err) == (3, b"xa b|$c|'|", "no")
        assert 0 < session.round_trip_s() < 1
        assert session.connections == 1


def test_much_goes_in_and_out_at_once(server: SshServer) -> None:
    much = bytes(range(256)) * (1 << 14)
    with Session(server.host()) as session:
        assert session.run(["cat"], input=much).out == much


def test_many_threads_share_one_connection(server: SshServer) -> None:
    with Session(server.host()) as session:
        hosts = [server.host(name=f"h{number}") for number in range(24)]
        found = together(hosts, lambda host: session.run(["echo", host.name]).text.strip())
        assert found == {host.name: host.name for host in hosts}
        assert session.connections == 1


def test_a_long_lived_process_is_spoken_with_line_by_line(server: SshServer) -> None:
    with Session(server.host()) as session:
        channel = session.open(["cat"])
        channel.send(b"one\ntwo\nthr")
        assert (channel.readline(5), channel.readline(5)) == (b"one\n", b"two\n")
        with pytest.raises(TimeoutError):
            channel.readline(0.1)
        channel.send(b"ee\n")
        assert channel.readline(5) == b"three\n"
        channel.end_input()
        assert channel.readline(5) == b""
        assert channel.wait(5) == 0


def test_an_unknown_key_is_refused_in_a_sentence_that_shows_it(server: SshServer) -> None:
    with pytest.raises(HostRefused) as refused:
        Session(server.host(fingerprint="")).connect()
    assert server.host_key.fingerprint in str(refused.value)
    assert "is not known" in str(refused.value)
    assert server.asked == []


@pytest.mark.parametrize("where", ["given", "home"])
def test_known_hosts_say_whose_key_it_is(where: str, server: SshServer, home: Path, tmp_path: Path) -> None:
    file = tmp_path / "known" if where == "given" else home / ".ssh" / "known_hosts"
    file.write_text(known(server))
    Session(server.host(fingerprint="", known_hosts=file if where == "given" else None)).connect()


def test_a_changed_key_is_told_apart_from_an_unknown_one(server: SshServer, home: Path) -> None:
    (home / ".ssh" / "known_hosts").write_text(known(server, paramiko.ECDSAKey.generate()))
    with pytest.raises(HostRefused, match="has changed"):
        Session(server.host(fingerprint="")).connect()
    assert server.asked == []


def test_a_fingerprint_stands_alone(server: SshServer, home: Path) -> None:
    (home / ".ssh" / "known_hosts").write_text(known(server, paramiko.ECDSAKey.generate()))
    Session(server.host()).connect()
    with pytest.raises(HostRefused, match=r"no key with the fingerprint|has changed"):
        Session(server.host(fingerprint=paramiko.ECDSAKey.generate().fingerprint)).connect()


def test_a_fingerprint_of_the_key_that_is_preferred_less_is_found(tmp_path: Path) -> None:
    with SshServer(tmp_path, host_key=paramiko.RSAKey.generate(2048)) as server:
        Session(server.host()).connect()


def test_another_key_than_the_users_is_refused(server: SshServer, tmp_path: Path) -> None:
    other = tmp_path / "other"
    paramiko.ECDSAKey.generate().write_private_key_file(str(other))
    with pytest.raises(HostRefused, match=f"does not let user somebody in with {other}"):
        Session(server.host(key=other)).connect()


def test_a_key_with_a_password_needs_it(server: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.user_key.write_private_key_file(str(tmp_path / "locked"), password="s3cret")
    host = server.host(key=tmp_path / "locked")
    with pytest.raises(HostRefused, match="has a password"):
        Session(host).connect()
    monkeypatch.setenv("OF_THE_KEY", "s3cret")
    Session(server.host(key=tmp_path / "locked", key_password="env:OF_THE_KEY")).connect()


def test_a_password_is_in_nothing_that_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with SshServer(tmp_path, password="s3cret") as server:
        host = server.host(key=None, password="env:OF_THE_USER")
        with pytest.raises(HostRefused, match="the environment has no variable OF_THE_USER"):
            Session(host).connect()
        monkeypatch.setenv("OF_THE_USER", "s3cret")
        with Session(host) as session:
            session.connect()
            assert "s3cret" not in repr(session) + repr(vars(session)) + repr(host)
        monkeypatch.setenv("OF_THE_USER", "s3cret-but-another")
        with pytest.raises(HostRefused, match="with the password") as refused:
            Session(host).connect()
        assert "s3cret" not in str(refused.value) + caplog.text + repr(refused.value.__context__)


def test_what_keeps_a_host_away_is_one_sentence_each(server: SshServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        nobody = silent.getsockname()[1]
    with pytest.raises(HostUnreachable, match="nobody answers at"):
        Session(server.host(port=nobody)).connect()
    with pytest.raises((HostRefused, HostUnreachable), match=r"no host of the name|cannot be looked up"):
        Session(server.host(address="nowhere.invalid")).connect()


def test_patience_is_for_what_may_come_back(server: SshServer) -> None:
    tried = []

    def fail(host: object) -> None:
        tried.append(time.monotonic())
        raise HostRefused("no") if len(tried) == 3 else HostUnreachable("not now")

    with pytest.raises(HostRefused):
        Session(server.host(), patience_s=30, make=fail).connect()  # type: ignore[arg-type]
    assert len(tried) == 3


def test_a_lost_connection_is_made_anew_at_the_next_use(server: SshServer) -> None:
    with Session(server.host()) as session:
        channel = session.open(["cat"])
        server.cut()
        with pytest.raises(HostUnreachable, match="the connection was lost"):
            channel.readline(5)
        assert session.run(["echo", "again"]).out == b"again\n"
        assert session.connections == 2


def test_a_command_that_takes_too_long_is_given_up(server: SshServer) -> None:
    with Session(server.host()) as session:
        started = time.monotonic()
        with pytest.raises(HostUnreachable, match=r"sleep 3 has not ended within 0.3 s"):
            session.run(["sleep", "3"], timeout_s=0.3)
        assert time.monotonic() - started < 2
        assert session.run(["true"]).status == 0


def test_a_way_over_other_hosts(server: SshServer, home: Path, tmp_path: Path) -> None:
    """Two, each with a key, a port and a user of its own."""
    (tmp_path / "j1").mkdir()
    (tmp_path / "j2").mkdir()
    with SshServer(tmp_path / "j1") as first, SshServer(tmp_path / "j2") as second:
        (home / ".ssh" / "config").write_text(
            f"Host far\n HostName 127.0.0.1\n Port {server.port}\n User someone\n IdentityFile {server.key_file}\n"
            f" ProxyJump first,keeper@second:{second.port}\n"
            f"Include more\nHost second\n HostName 127.0.0.1\n IdentityFile {second.key_file}\n"
        )
        (home / ".ssh" / "more").write_text(
            f"Host first\n HostName 127.0.0.1\n Port {first.port}\n IdentityFile {first.key_file}\n User opener\n"
        )
        (home / ".ssh" / "known_hosts").write_text(known(first) + known(second) + known(server))
        host = server.host(address="far", port=None, user=None, key=None, fingerprint="")
        with Session(host) as session:
            assert session.run(["echo", "here"]).out == b"here\n"
        assert first.forwarded == [("127.0.0.1", second.port)]
        assert second.forwarded == [("127.0.0.1", server.port)]
        assert (first.asked[-1], second.asked[-1], server.asked[-1]) == ("opener", "keeper", "someone")
        (home / ".ssh" / "known_hosts").write_text(known(first) + known(server))
        with pytest.raises(HostRefused, match=r"by way of second: the key of .* is not known"):
            Session(host).connect()


def test_a_way_by_a_command(server: SshServer, home: Path) -> None:
    copy = (
        "import socket,sys,threading,os; s=socket.create_connection((sys.argv[1],int(sys.argv[2]))); "
        "threading.Thread(target=lambda: [os.write(1,d) for d in iter(lambda: s.recv(9999),b'')],daemon=True).start();"
        "[s.sendall(d) for d in iter(lambda: os.read(0,65536),b'')]"
    )
    (home / ".ssh" / "config").write_text(
        f'Host odd\n HostName 127.0.0.1\n Port {server.port}\n ProxyCommand python3 -c "{copy}" %h %p\n'
        " HostKeyAlias elsewhere\n"
    )
    (home / ".ssh" / "known_hosts").write_text(known(server, name="elsewhere"))
    with Session(server.host(address="odd", port=None, fingerprint="")) as session:
        assert session.run(["echo", "here"]).out == b"here\n"


@pytest.mark.parametrize("of_file", ["Port 1\n User nobody\n", ""], ids=["another in the file", "none in the file"])
def test_a_command_on_the_way_gets_the_port_and_user_of_the_hosts_file(
    of_file: str, server: SshServer, home: Path
) -> None:
    said = home / "said"
    (home / ".ssh" / "config").write_text(
        f"Host odd\n HostName 127.0.0.1\n {of_file}Match host 127.0.0.1 user somebody\n"
        f" ProxyCommand echo %h %p %r >>{said}\n"
    )
    with pytest.raises(HostUnreachable):
        Session(server.host(address="odd", port=2222)).connect()
    assert said.read_text() == "127.0.0.1 2222 somebody\n"


def test_what_comes_out_goes_into_a_file_as_it_comes(server: SshServer, tmp_path: Path) -> None:
    with Session(server.host()) as session, (tmp_path / "out").open("wb") as file:
        done = session.run(["sh", "-c", "head -c 3000000 /dev/zero; echo why >&2; exit 3"], into=file)
        assert done == (3, b"", "why")
    assert (tmp_path / "out").read_bytes() == bytes(3_000_000)


_SUDO = r"""#!/bin/sh
# As sudo is: %s
while [ "$1" != -- ]; do
  case "$1" in -n) silent=1;; -p) prompt=$2; shift;; esac
  shift
done
shift
[ %d = 1 ] && exec "$@"
[ -n "$silent" ] && { echo "sudo: a password is required" >&2; exit 1; }
for attempt in 1 2 3; do
  printf %%s "$prompt" >&2
  read -r given || { echo "sudo: no password was provided" >&2; exit 1; }
  [ "$given" = s3cret ] && exec "$@"
done
exit 1
"""


@pytest.mark.parametrize("asks", [True, False])
@pytest.mark.parametrize("password", ["", "s3cret", "wr0ng"])
def test_sudo_gets_its_password_and_the_command_never(
    asks: bool, password: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    sudo = tmp_path / "bin" / "sudo"
    sudo.write_text(_SUDO % ("a stand-in", 0 if asks else 1))
    sudo.chmod(0o755)
    monkeypatch.setenv("OF_SUDO", password or "-")
    with SshServer(tmp_path, path=f"{tmp_path / 'bin'}:/usr/bin:/bin") as server:
        host = server.host(sudo_password="env:OF_SUDO" if password else "")
        with Session(host) as session:
            if asks and password != "s3cret":
                match = "sudo does not take the password" if password else "sudo wants a password"
                with pytest.raises(HostRefused, match=match) as refused:
                    session.run(["cat"], sudo=True, input=b"mine")
                assert "s3cret" not in str(refused.value)
                assert "wr0ng" not in str(refused.value)
                return
            found = session.run(["sh", "-c", "cat; echo it says >&2"], sudo=True, input=b"mine")
            assert (found.status, found.out, found.err) == (0, b"mine", "it says")
            channel = session.open(["cat"], sudo=True)
            channel.send(b"line\n")
            assert channel.readline(5) == b"line\n"
            assert not any("s3cret" in command for command in server.commands)


def test_without_sudo_there_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for tool in ("sh", "env", "true"):
        (tmp_path / "bin" / tool).symlink_to(f"/usr/bin/{tool}")
    with (
        SshServer(tmp_path, path=str(tmp_path / "bin")) as server,
        Session(server.host()) as session,
        pytest.raises(HostRefused, match="there is no sudo"),
    ):
        session.run(["true"], sudo=True)
    with SshServer(tmp_path) as server, Session(server.host(user="root")) as session:
        assert session.run(["true"], sudo=True).status == 0
        assert server.commands == ["true"]
    with SshServer(tmp_path) as server, Session(server.host(sudo=False)) as session:
        session.run(["true"], sudo=True)
        assert server.commands == ["true"]


def test_a_dead_host_is_an_answer_too(server: SshServer) -> None:
    def work(session: Session) -> str:
        return session.run(["echo", session.name]).text.strip()

    found = together([Session(server.host()), Session(server.host(name="bad", port=1))], work)
    assert found["a"] == "a"
    assert isinstance(found["bad"], HostUnreachable)
    with pytest.raises(ZeroDivisionError):
        together([server.host()], lambda _: 1 // 0)


def test_what_fails_on_some_hosts_is_one_error_that_has_what_came_of_the_others(server: SshServer) -> None:
    well, dead = Session(server.host(name="well")), Session(server.host(name="dead", port=1))
    assert on_all([well], lambda session: session.run(["echo", "here"]).text) == {"well": "here\n"}
    with pytest.raises(NotOnAll, match=r"^host dead: nobody answers") as error:
        on_all([dead, well], lambda session: session.run(["echo", "here"]).text)
    assert error.value.done == {"well": "here\n"}
    well.close()


def test_what_a_command_is_called_is_not_its_program(server: SshServer) -> None:
    with Session(server.host()) as session:
        with pytest.raises(HostUnreachable, match=r"host a: a long look has not ended within 0\.2 s"):
            session.run(["python3", "-c", "import time; time.sleep(2)"], timeout_s=0.2, what="a long look")
        with pytest.raises(HostUnreachable, match=r"host a: sleep 2 has not ended within 0\.2 s"):
            session.run(["sleep", "2"], timeout_s=0.2)


def test_why_a_command_failed_is_its_last_word(server: SshServer) -> None:
    with Session(server.host()) as session:
        assert session.run(["sh", "-c", "echo one >&2; echo two >&2; echo >&2; exit 3"]).why == "two"
        assert session.run(["sh", "-c", "exit 3"]).why == "exit status 3"
