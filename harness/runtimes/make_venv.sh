#!/usr/bin/env bash
# make_venv.sh PYTHON DIRECTORY: a virtual environment with the pinned requirements and the chaos command.
# Debian ships Python without ensurepip; root gets python3-venv installed, everyone else gets told.
set -euo pipefail
python=$1
venv=$2
root=$(cd "$(dirname "$0")/../.." && pwd)

fail() {
    echo "$1" >&2
    exit 1
}

command -v "$python" >/dev/null || fail "There is no $python on this machine; chaos needs Python 3.11 or newer."
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "chaos needs Python 3.11 or newer, and $python is $("$python" --version); name another: make PYTHON=python3.12"

if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    if ! "$python" -c 'import ensurepip' 2>/dev/null; then
        package="python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv"
        if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
            echo "Installing $package ..."
            apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y "$package" >/dev/null
        else
            fail "$python cannot make a virtual environment: install $package first (sudo apt-get install $package)."
        fi
    fi
    echo "Making a virtual environment in $venv ..."
    "$python" -m venv --clear "$venv"
fi

echo "Installing the pinned requirements (a few minutes the first time) ..."
"$venv/bin/python" -m pip install --quiet --requirement "$root/requirements.txt"
"$venv/bin/python" -m pip install --quiet --no-deps --no-build-isolation --editable "$root"
