# What nodes and agent share: Python 3.11 with the node's dependencies, and the tools for volumes and networks.
# BASE is an official Python image, or the one that bootstrap_base.sh makes, which has the tools already.
ARG BASE
FROM ${BASE}
RUN { command -v mkfs.ext4 && command -v mkfs.xfs && command -v nft && command -v tc \
      && ls /usr/lib/*/faketime; } >/dev/null 2>&1 || \
    { apt-get update -qq \
      && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
             e2fsprogs xfsprogs nftables iproute2 libfaketime \
      && rm -rf /var/lib/apt/lists/*; }
COPY site-packages /opt/site-packages
# Without it there are no faults of clocks, and the agent finds that out.
COPY clock_library.py /opt/clock/
RUN python3 /opt/clock/clock_library.py /opt/clock/libfaketime.so || true
RUN python3 -m compileall -q /opt/site-packages
ENV PYTHONPATH=/opt/site-packages:/opt/chaos PYTHONUNBUFFERED=1
