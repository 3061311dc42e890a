#!/usr/bin/env bash
# Installs Docker Engine from Debian's own packages and starts it, with or without systemd. Needs root, unless an
# engine runs already. May be repeated.
set -euo pipefail

readonly LOG=/var/log/chaos-dockerd.log
readonly PID=/var/run/docker.pid
readonly PATIENCE=60 # seconds

fail() {
    echo "$1" >&2
    exit 1
}

engine_answers() {
    python3 - <<'PYTHON' 2>/dev/null
import socket
engine = socket.socket(socket.AF_UNIX)
engine.settimeout(5)
engine.connect("/var/run/docker.sock")
engine.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
assert b"200 OK" in engine.recv(100)
PYTHON
}

start_engine() {
    if [ -d /run/systemd/system ]; then
        systemctl enable --now docker
        return
    fi
    if ! mountpoint --quiet /sys/fs/cgroup; then
        mount -t cgroup2 cgroup2 /sys/fs/cgroup
    fi
    # An engine that was killed leaves its pid behind; the next refuses to start if any process has that pid now.
    if [ -f "$PID" ] && [ "$(cat "/proc/$(cat "$PID")/comm" 2>/dev/null)" != dockerd ]; then
        rm -f "$PID"
    fi
    setsid --fork dockerd >"$LOG" 2>&1 </dev/null
}

if engine_answers; then
    echo "A Docker Engine is running."
    exit 0
fi
if [ "$(id -u)" -ne 0 ] && [ -S /var/run/docker.sock ] && [ ! -w /var/run/docker.sock ]; then
    fail "There is an engine's socket that you may not use: sudo usermod -aG docker $USER, and log in again."
fi
[ "$(id -u)" -eq 0 ] || fail "Installing and starting a Docker Engine needs root: sudo make docker"
if ! command -v dockerd >/dev/null; then
    command -v apt-get >/dev/null || fail "This installs Docker on Debian only: install and start a Docker Engine first."
    echo "Installing Docker Engine ..."
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update -qq && apt-get install -qq -y docker.io; } >/dev/null
fi
# Debian starts it on installation where systemd runs.
engine_answers || start_engine
for _ in $(seq "$PATIENCE"); do
    if engine_answers; then
        echo "A Docker Engine is running."
        exit 0
    fi
    sleep 1
done
[ -f "$LOG" ] && tail -n 5 "$LOG" >&2
fail "The Docker Engine was started but does not answer after $PATIENCE s."
