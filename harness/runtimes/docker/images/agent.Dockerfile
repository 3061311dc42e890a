ARG BASE
FROM ${BASE}
COPY . /opt/chaos/agent
ENTRYPOINT ["python3", "-m", "agent"]
