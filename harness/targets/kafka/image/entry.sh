#!/bin/sh
# A node of Apache Kafka: formats its log directories unless they are, and becomes the broker or controller.
#
# /config/node.properties is Kafka's own configuration, and lines `chaos.<name>=<value>` beside it: cluster.id; format
# (synced or unsynced: is what `format` wrote synced before Kafka starts?); format.options (arguments for it); heap;
# release (first, or next: the one that it is upgraded to).
set -eu
config=/config/node.properties
mine=/opt/chaos-kafka
kafka=/tmp/kafka.properties  # not on the volume, whose disk may be broken

setting() { sed -n "s/^chaos\.$1=//p" "$config"; }
grep -v '^chaos\.' "$config" > "$kafka"

if [ -x "$mine/jre/bin/java" ]; then java=$mine/jre/bin/java; else java=$(command -v java || echo "${JAVA_HOME:-/no}/bin/java"); fi
[ -x "$java" ] || { echo "chaos: there is no Java in this image"; exit 64; }
if [ "$(setting release)" = next ]; then libs=$mine/libs-next
elif [ -d "$mine/libs" ]; then libs=$mine/libs; else libs=/opt/kafka/libs; fi
ls "$libs"/kafka-clients-*.jar > /dev/null 2>&1 || { echo "chaos: there is no Kafka in $libs of this image"; exit 64; }
logging="-Dlog4j2.configurationFile=$mine/log4j2.properties -Dlog4j.configuration=file:$mine/log4j.properties"
heap=$(setting heap)

run_java() {  # the size of its heap
    echo "$java -Xms$1 -Xmx$1 -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData $logging"
}

for directory in $(sed -n 's/^log\.dirs=//p' "$kafka" | tr , ' '); do
    mkdir -p "$directory"
    [ -e "$directory/meta.properties" ] || unformatted=yes
done
if [ "${unformatted:-}" ]; then
    # Ignored: what a node that lost its power in the middle of it had formatted before.
    # shellcheck disable=SC2046,SC2086
    $(run_java 128m) -cp "$libs/*" kafka.tools.StorageTool format --ignore-formatted \
        --cluster-id "$(setting cluster.id)" --config "$kafka" $(setting format.options)
    [ "$(setting format)" = unsynced ] || sync
fi
# shellcheck disable=SC2046
exec $(run_java "$heap") -cp "$libs/*" kafka.Kafka "$kafka"
