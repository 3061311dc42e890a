#!/bin/sh
# A server of ZooKeeper if the configuration has a number for one, else a broker.
set -eu
config=/config/node.properties
mine=/opt/chaos-zookeeper
number=$(sed -n 's/^chaos\.myid=//p' "$config")
[ "$number" ] || exec python3 -m cluster_image "$config"
data=$(sed -n 's/^dataDir=//p' "$config")
[ "$(cat "$data/myid" 2>/dev/null)" = "$number" ] || echo "$number" > "$data/myid"
class_path=$(printf '%s:' "$mine"/jars/*.jar)
exec "$mine/java/bin/java" -Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData \
    -Dzookeeper.jmx.log4j.disable=true "-Dlog4j2.configurationFile=$mine/log4j2.properties" \
    -cp "${class_path%:}" org.apache.zookeeper.server.quorum.QuorumPeerMain "$config"
