"""The controllers: the metadata quorum (raft/), the state it agrees on (metadata/), and who changes that
(controller/)."""
