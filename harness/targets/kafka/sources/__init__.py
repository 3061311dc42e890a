"""Where a Kafka comes from: a distribution, an image, the cache or the Maven client."""
