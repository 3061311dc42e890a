"""Replicas and how they follow their leaders: partition, high watermark, ISR, fetchers, the logs on disk."""
