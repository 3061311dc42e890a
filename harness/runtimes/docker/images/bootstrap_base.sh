#!/usr/bin/env bash
# bootstrap_base.sh TAR: a small Debian with Python 3.11 and the agent's tools, as a tar for `docker import`.
# For machines where no image registry answers. Needs root, for mmdebstrap.
set -euo pipefail
tar=$1

[ "$(id -u)" -eq 0 ] || { echo "only root can bootstrap a base image" >&2; exit 1; }
export DEBIAN_FRONTEND=noninteractive
if ! command -v mmdebstrap >/dev/null; then
    { apt-get update -qq && apt-get install -qq -y --no-install-recommends mmdebstrap; } >/dev/null ||
        { echo "mmdebstrap is not installed" >&2; exit 1; }
fi

# Beside the tar: whoever removes a build that was killed knows its folder.
work=$(mktemp --directory --tmpdir="$(dirname "$tar")")
trap 'rm -rf --one-file-system "$work"' EXIT
TMPDIR=$work mmdebstrap --quiet --mode=root --variant=minbase \
    --include=usr-is-merged,python3,e2fsprogs,xfsprogs,nftables,iproute2,libfaketime \
    --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/info/*' \
    --customize-hook='rm -rf "$1"/var/log/* "$1"/etc/dpkg/dpkg.cfg.d/*' \
    bookworm "$tar" >"$work/log" 2>&1 || { tail -n 3 "$work/log" >&2; exit 1; }
