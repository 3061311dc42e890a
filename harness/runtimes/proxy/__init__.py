"""A proxy between clients and brokers that tells Kafka's requests apart, and holds back or repeats those of a kind."""
