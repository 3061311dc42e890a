#!/usr/bin/env bash
# bootstrap_base.sh TAR: a small Debian with Python 3.11 and the agent's tools, as a tar for `docker import`.
# For machines where no image registry answers. Needs root, for debootstrap.
set -euo pipefail
tar=$1

[ "$(id -u)" -eq 0 ] || { echo "only root can bootstrap a base image" >&2; exit 1; }
export DEBIAN_FRONTEND=noninteractive
if ! command -v debootstrap >/dev/null; then
    { apt-get update -qq && apt-get install -qq -y debootstrap; } >/dev/null ||
        { echo "debootstrap is not installed" >&2; exit 1; }
fi

# Beside the tar: whoever removes a build that was killed knows its folder.
work=$(mktemp --directory --tmpdir="$(dirname "$tar")")
trap 'rm -rf --one-file-system "$work"' EXIT
debootstrap --variant=minbase --include=python3,e2fsprogs,xfsprogs,nftables,iproute2,libfaketime bookworm "$work/root" \
    >"$work/log" 2>&1 || { tail -n 3 "$work/log" >&2; exit 1; }
cd "$work/root"
rm -rf var/cache/apt/* var/lib/apt/lists/* var/log/* usr/share/{doc,man,locale,info}
tar --create --file "$tar" .
