"""What is judged inside a cluster of Apache Kafka: the metadata log, what nodes tell when asked, what lies on disks."""
