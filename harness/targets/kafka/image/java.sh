# Where Java and a Kafka are in the image, and how the one runs the other: for entry.sh and share_classes.sh.
mine=/opt/chaos-kafka
if [ -x "$mine/jre/bin/java" ]; then java=$mine/jre/bin/java; else java=$(command -v java || echo "${JAVA_HOME:-/no}/bin/java"); fi

libs_of() {  # the release: first, or next, the one that it is upgraded to
    if [ "$1" = next ]; then echo "$mine/libs-next"
    elif [ -d "$mine/libs" ]; then echo "$mine/libs"; else echo /opt/kafka/libs; fi
}

archive_of() {  # the jars' folder, and the class: of what that loads
    echo "$mine/${1##*/}-$2.jsa"
}

# Replaces this shell by a virtual machine. Its class path has always the same order, as an archive of classes needs.
run_java() {  # the size of its heap, the jars' folder, options of the virtual machine, the class, its arguments
    heap=$1 libs=$2 options=$3
    shift 3
    class_path=$(printf '%s:' "$libs"/*.jar)
    # shellcheck disable=SC2086
    exec "$java" "-Xms$heap" "-Xmx$heap" -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData $options \
        "-Dlog4j2.configurationFile=$mine/log4j2.properties" "-Dlog4j.configuration=file:$mine/log4j.properties" \
        -cp "${class_path%:}" "$@"
}
