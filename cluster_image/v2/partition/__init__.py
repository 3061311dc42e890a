"""One partition on one broker: its replica (`replica`, with `leadership` while it leads), who leads it (`election`),
what is committed (`commit`), and where it is moved (`reassignments`)."""
