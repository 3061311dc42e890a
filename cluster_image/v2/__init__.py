"""The generation before KRaft: brokers that agree on leaders and replicas by way of ZooKeeper, as the V2 design has it
(PROTOCOL.md, 001)."""
