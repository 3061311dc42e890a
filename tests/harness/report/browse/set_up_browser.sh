#!/usr/bin/env bash
# What tests marked `browser` need: Chromium, of Debian, and axe-core, which looks for what keeps people out of a page.
# Usage: set_up_browser.sh [DIRECTORY]; axe-core goes to DIRECTORY, .browser by default, and is not fetched twice.
set -euo pipefail
cd "$(dirname "$0")/../../../.."
directory=${1:-.browser}
version=4.14.1

if ! command -v chromium >/dev/null; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium fonts-dejavu-core >/dev/null
fi

if [ ! -f "$directory/axe-$version.min.js" ]; then
    if ! command -v npm >/dev/null; then
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends npm >/dev/null
    fi
    mkdir -p "$directory"
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    (cd "$scratch" && npm pack --silent "axe-core@$version" >/dev/null && tar -xzf ./*.tgz package/axe.min.js)
    mv "$scratch/package/axe.min.js" "$directory/axe-$version.min.js"
fi
