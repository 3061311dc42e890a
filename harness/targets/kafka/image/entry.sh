#!/bin/sh
# A node of Apache Kafka: formats its log directories unless they are, and becomes the broker or controller.
#
# /config/node.properties is Kafka's own configuration, and lines `chaos.<name>=<value>` beside it: cluster.id; format
# (synced or unsynced: is what `format` wrote synced before Kafka starts?); format.options (arguments for it); heap;
# release (first, or next: the one that it is upgraded to). /secrets/format.arguments, if it is there, are further
# arguments for `format`: in a file from start to end, for command lines of processes are for everybody to see.
set -eu
config=/config/node.properties
kafka=/tmp/kafka.properties  # not on the volume, whose disk may be broken
. /opt/chaos-kafka/java.sh

setting() { sed -n "s/^chaos\.$1=//p" "$config"; }
grep -v '^chaos\.' "$config" > "$kafka"

[ -x "$java" ] || { echo "chaos: there is no Java in this image"; exit 64; }
libs=$(libs_of "$(setting release)")
ls "$libs"/kafka-clients-*.jar > /dev/null 2>&1 || { echo "chaos: there is no Kafka in $libs of this image"; exit 64; }

archived() {  # the class: the option for the archive of what that loads, if the image has it
    if [ -e "$(archive_of "$libs" "$1")" ]; then echo "-XX:SharedArchiveFile=$(archive_of "$libs" "$1")"; fi
}

for directory in $(sed -n 's/^log\.dirs=//p' "$kafka" | tr , ' '); do
    mkdir -p "$directory"
    [ -e "$directory/meta.properties" ] || unformatted=yes
done
if [ "${unformatted:-}" ]; then
    # Ignored: what a node that lost its power in the middle of it had formatted before.
    # shellcheck disable=SC2046
    {
        echo kafka.tools.StorageTool format --ignore-formatted --cluster-id "$(setting cluster.id)" \
            --config "$kafka" $(setting format.options)
        if [ -e /secrets/format.arguments ]; then cat /secrets/format.arguments; fi
    } > /tmp/format.arguments
    (run_java 128m "$libs" "$(archived StorageTool)" @/tmp/format.arguments)
    rm /tmp/format.arguments
    [ "$(setting format)" = unsynced ] || sync
fi
run_java "$(setting heap)" "$libs" "$(archived Kafka)" kafka.Kafka "$kafka"
