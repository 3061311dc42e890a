"""The generation with controllers: the metadata quorum (raft/), the state it agrees on (metadata/), who changes that
(controller/), and the brokers that follow it (broker/)."""
