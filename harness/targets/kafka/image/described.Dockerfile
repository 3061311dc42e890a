# One node of a target that a file describes, as a user without privileges, on the image that it names.
ARG BASE
FROM ${BASE}
COPY described.sh /opt/chaos/described.sh
USER 10001:10001
ENTRYPOINT ["/bin/sh", "/opt/chaos/described.sh"]
CMD []
