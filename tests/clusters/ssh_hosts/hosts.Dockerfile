# A Debian machine with an SSH server, and nothing of ours: what chaos needs there it has to bring.
ARG BASE
FROM ${BASE}
COPY debs /tmp/debs
RUN DEBIAN_FRONTEND=noninteractive dpkg -i --force-confnew /tmp/debs/*.deb >/tmp/log 2>&1 || { cat /tmp/log; exit 1; } \
    && rm -rf /tmp/debs /tmp/log /etc/ssh/ssh_host_* /etc/machine-id /opt/site-packages /opt/chaos /opt/clock \
    && mkdir -p /run/sshd \
    && useradd --create-home --shell /bin/bash --password '*' admin \
    && echo 'admin ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/admin \
    && echo 'Set disable_coredump false' >/etc/sudo.conf
COPY start.sh /start.sh
ENV PYTHONPATH="" PYTHONUNBUFFERED=""
ENTRYPOINT ["bash", "/start.sh"]
