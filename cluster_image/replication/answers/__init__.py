"""What a broker tells of the cluster, from its own metadata: the answers to Metadata and to Describe... requests.

Of a generation they ask for what the Protocols of `known` have."""
