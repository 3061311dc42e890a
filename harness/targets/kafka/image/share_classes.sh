#!/bin/sh
# Archives the classes that a node loads, of each Kafka in the image, so that a node starts in two thirds of the time
# (class-data sharing, as in the image apache/kafka): it is formatted and started once, while the image is built. A
# Kafka that does not start, or a Java that has no such archives, leaves none, and nodes start without.
set -u
. /opt/chaos-kafka/java.sh
work=/tmp/share-classes
most=1200  # tenths of a second, for one Kafka

cat > /tmp/share-classes.properties <<END
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:29093
listeners=PLAINTEXT://127.0.0.1:29092,CONTROLLER://127.0.0.1:29093
controller.listener.names=CONTROLLER
log.dirs=$work
offsets.topic.replication.factor=1
END

archive() {  # the jars' folder
    rm -rf "$work"
    (run_java 128m "$1" "-XX:ArchiveClassesAtExit=$(archive_of "$1" StorageTool)" kafka.tools.StorageTool \
        format --cluster-id AAAAAAAAAAAAAAAAAAAAAA --config /tmp/share-classes.properties) > /dev/null 2>&1 || return
    (run_java 256m "$1" "-XX:ArchiveClassesAtExit=$(archive_of "$1" Kafka)" kafka.Kafka \
        /tmp/share-classes.properties) > /tmp/share-classes.log 2>&1 &
    waited=0
    while [ $((waited += 1)) -lt $most ] && kill -0 $! 2> /dev/null; do
        if grep -q 'Kafka Server started' /tmp/share-classes.log; then kill $!; break; fi
        sleep 0.1
    done
    while [ $((waited += 1)) -lt $most ] && kill -0 $! 2> /dev/null; do sleep 0.1; done
    kill -9 $! 2> /dev/null
    wait $!
}

# Of Java's own classes, on which the others build: not every runtime comes with theirs.
"$java" -Xshare:on -version > /dev/null 2>&1 || "$java" -Xshare:dump > /dev/null 2>&1

for release in first next; do
    libs=$(libs_of $release)
    if [ -d "$libs" ]; then archive "$libs"; fi
done
rm -rf "$work" /tmp/share-classes.*
