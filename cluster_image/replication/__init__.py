"""The records of partitions, and how they come from leader to follower: what all generations of the protocol share. It
knows nothing of where one has its metadata.

- `served`: what the APIs below ask of a partition and of the metadata, which a generation brings;
- `produce`, `fetch` with `fetch_session`, `offsets`: these APIs, where a partition is led;
- `answers`: Metadata and what else is told of the cluster;
- `fetcher` with `fetch_session_handler`: a broker's fetching from another;
- `replica`: a replica's log and high watermark, in whatever role, and what it does as a follower; `follower_state`:
  what a leader knows of one;
- `log_manager`, `retention`: all logs of a broker, and what of them goes; `quotas`: how fast replicas are moved;
- `rules`: its safety rules.
"""
