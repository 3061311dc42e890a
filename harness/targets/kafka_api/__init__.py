"""What targets that speak Kafka's protocol have in common: an administrator, an observer, logs in Kafka's format."""
