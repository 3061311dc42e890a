"""The target `kafka`: Apache Kafka itself, in KRaft mode, from a distribution, an image or the Maven client."""
