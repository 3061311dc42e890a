#!/bin/sh
# A node of a target that a file describes. The lines `#chaos.<name>=<value>` at the head of its configuration say what
# to run: format, once, unless the file `formatted` is there, and then synced; and command.
set -eu
configuration=/config/node.properties
setting() { sed -n "s/^#chaos\.$1=//p" "$configuration"; }

data=$(setting data)
mkdir -p "$data"
format=$(setting format)
if [ -n "$format" ] && [ ! -e "$data/$(setting formatted)" ]; then
    sh -eu -c "$format"
    sync
fi
exec sh -eu -c "exec $(setting command)"
