"""The protocol's own properties, checked after every step of the simulation with full knowledge of all nodes.

`Invariants` is told by each node's trace what has changed, and looks at just that; `check_all` trusts no trace. What
the words mean:

- *Committed* is what any leader has ever moved its high watermark over.
- The *controller's* state is the committed metadata, replayed by the oracle as soon as any node replays it.
- A replica's log is what is on its node's disk, process or no process; but after a lossy power cut it is *unknown*
  until the node's next process acts on the metadata. By then it has registered (see partitions.py).
- The *current leader* is the replica that leads in the leader epoch of the controller's state.

| property                      | statement                                                | checked when   | source
| ----------------------------- | -------------------------------------------------------- | -------------- | ----------
| ValidControllerIsrAndElr      | members of ISR and ELR are replicas; nobody is in both;  | each committed | TLA+;
|                               | with MinISR in the ISR, ELR and LastKnownELR are empty   | metadata batch | 002, 5.2.1
| ValidControllerState          | the leader is in the ISR; nobody in the ISR is fenced or | each committed | TLA+;
|                               | shutting down (without ELR: but for the last member of a | metadata batch | 000, 2.8;
|                               | partition without leader); no record contradicts the     |                | KIP-841;
|                               | state, or registers a broker twice in one life of its    |                | M29, M47,
|                               | process                                                  |                | M53
| MinIsrRecoveryQuorum          | if ISR and ELR are empty, LastKnownELR has at least      | the controller | TLA+;
|                               | MinISR members, if the ISR ever had so many [1]          | changes it     | 002, 5.3.2
| ValidReplicas:                | replicas are different registered brokers, and over      | each committed | 003;
| assignments.py                | racks as far as there are; no change leaves fewer than   | metadata batch | KIP-36
|                               | MinISR of them, or of those in sync                      |                |
| ReplicationQuorumSuperset     | the current leader's maximal ISR is its ISR if it        | the partition  | TLA+; text
|                               | proposes nothing; it includes the controller's ISR and   | changes        | 6.5.2
|                               | ELR if its ISR has MinISR members (without ELR: always)  |                |
| LeaderCompleteness            | the elected leader's log, if known, begins with the      | the partition  | TLA+; text
|                               | committed log                                            | changes        | 6.5
| LeaderCandidateCompleteness   | so does the log of every member of ISR and ELR, and of   | the partition  | TLA+; text
|                               | whom the current leader proposes to add to the ISR, if   | changes        | 6.5, 6.5.3
|                               | still in the session that it fetched in [4]              |                |
| LogMatching                   | a batch with the same leader epoch and offset is the     | each append    | TLA+; text
|                               | same batch after the same predecessor, on all replicas   |                | 3.2, 6.6;
|                               | at all times; and right after an append a follower's log |                | Raft 5.3
|                               | is a prefix of its leader's [2]                          |                |
| LeaderAppendOnly              | in its leader epoch a leader's log never shrinks, and    | the leader     | Raft,
|                               | grows by batches of that epoch only                      | changes        | figure 3
| StrongIsr                     | the current leader is right about its followers: what    | the partition  | M04; text
|                               | one has fetched in this leader epoch and in its present  | changes        | 6.5
|                               | session, it holds                                        |                |
| HighWatermarkMonotonicity     | a leader's high watermark never falls in its epoch [3];  | the replica    | 000, 2.7;
|                               | the current leader's, once it has reached its epoch's    | changes        | text
|                               | start offset, is no lower than any before; a quorum      |                | 6.4.2;
|                               | replica's never falls in a life of its process; none     |                | Raft
|                               | lies past its log's end                                  |                |
| ConsistentRead                | whoever takes itself for a leader shows below its high   | a leader       | TLA+
|                               | watermark what any leader ever showed there              | changes        |
| NoCommittedRecordLostGlobally | the log of some replica begins with the committed log,   | the partition  | TLA+
|                               | or is unknown; within the contract                       | changes        |
| ValidLogStart                 | no log starts above what its replica knows to be         | the replica    | KIP-107
|                               | committed, nor a follower's above where any leader's     | changes        |
|                               | ever did; a leader's log start never falls in its epoch, |                |
|                               | nor is it below where a follower has told that it has    |                |
|                               | deleted what is committed                                |                |
| MetadataLogMatching           | as LogMatching's first part, of the metadata logs of     | each append    | TLA+;
|                               | voters and observers                                     |                | Raft 5.3
| ElectionSafety                | an epoch of the quorum has one leader                    | the node       | Raft 5.2
|                               |                                                          | changes        |
| CommittedPrefix               | all nodes take the same metadata for committed; a leader | the node       | Raft 5.4;
|                               | has what was committed in earlier epochs, and commits    | changes; the   | KIP-630
|                               | nothing more before a record of its own; a majority of   | majority: now  |
|                               | the voters' disks has all; a snapshot gives the state    | and then       |
|                               | after what was committed below its end                   |                |
| FlushedOffset and others:     | what a node takes to be durable, and tells others to be, | the node       | KAFKA-
| durability.py                 | is on its disk                                           | changes        | 10533; 002
| OpenedLog, LogFiles:          | what a node makes of the files of its logs               | once a second  | 002, 5.1
| log_files.py                  |                                                          |                |
| LeaderEpochCheckpoint:        | what a node takes the leader epochs of a log for is what | once a second  | KIP-101;
| log_files.py                  | its batches say                                          |                | KIP-279
| ProducerSequence and others:  | what an idempotent producer is promised                  | the replica    | KIP-98;
| producers.py                  |                                                          | changes        | KIP-360
| DecidedIsr and others:        | nothing counts that is late, from before a restart, or   | the replica    | 000, 2.9;
| answers.py                    | was not answered; what stands already is not proposed    | changes        | KIP-903
| FetchedFromLeader:            | a replica that follows is fetched from the leader that   | ten times a    | 000,
| following.py                  | it knows of alone; what is no replica is not fetched     | second         | 2.2.3
| FetchAnswered:                | who fetches is told what is so, as soon as there is      | a broker       | 000,
| answering/fetching.py         | something to tell, and not before                        | answers        | 2.2.3
| AdministratorAnswered:        | what administrators ask for is refused only for what is  | the controller | Apache
| answering/administration.py   | so, and else written as it was asked                     | decides        | Kafka;
|                               |                                                          |                | 003
| BrokerAnswered:               | what brokers ask for is decided as it was asked, or      | the controller | 000, 2.9;
| answering/brokers.py          | refused for what is so; and they are told what is decided| decides        | text 8
| QuorumAnswered,               | members of the quorum make of what others ask and answer | a member is    | Raft 5;
| ElectionTimeouts:             | what Raft makes of it; and stand for election no sooner  | asked or       | KIP-595
| answering/voters.py           | and no later, by chance                                  | answered       |
| AcknowledgedOnceCommitted:    | an append with acks=all is acknowledged no sooner than   | a broker       | 000, 2.6
| answering/acknowledging.py    | it is committed, and not given up after that             | answers        |
| OffsetLookup:                 | what a leader answers of its log by a time or an epoch,  | a broker       | KIP-101;
| answering/lookups.py          | the log says                                             | answers        | KIP-734
| UncleanRecovery               | a balanced unclean recovery elects whose log goes        | it is decided  | 002,
|                               | furthest, by epoch first, of those who have told; an     |                | 5.3.1;
|                               | election is told as unclean if, and only if, its leader  | committed      | KIP-704
|                               | was in neither ISR nor ELR                               |                |
| WatermarkAdvances and others: | what must come about does: a follower that keeps up with | the replica    | 000, 2.9;
| liveness/                     | its leader and may be in the ISR is in it or proposed    | changes; ten   | design;
|                               | for it within a second, and who does not leaves it; no   | times a        | KAFKA-
|                               | high watermark is held back for who may not be in it,    | second; once   | 15021
|                               | nor stands where all are past it; a reassignment whose   | all is healed  |
|                               | target is in sync ends; a                                |                |
|                               | leader of the quorum that no majority follows resigns;   |                |
|                               | what retention does not keep is deleted, and the logs of |                |
|                               | what is no replica any more;                             |                |
|                               | and after healing, all of liveness/unmet.py              |                |

TLA+: kip_966_properties.tla of Vanlightly/kafka-tlaplus; text: the description beside it; 000, 002: the protocol
documents; M: the bug catalogue.

[1] The model says exactly MinISR. But a leader may drop two lagging followers at once, and both are eligible then.
[2] The model's form, equal up to the lower of both high watermarks, follows from either part.
[3] A follower's may fall, and a new leader's may lag behind the true one (text 6.4).
[4] The model asks only of members. But a leader must know beforehand: from the proposal on, the controller may have
    accepted it, and elect whom it names.

**The contract**: of a partition's replicas, at most MinISR - 1 at a time have lost power in a lossy way and not been
found complete in ISR or ELR since. Once it is broken, that nobody holds the committed log any more is noted in
`losses`; and if an unclean recovery then elects a leader, the committed log is what that one holds, and leaders of
earlier epochs count no more. All other properties hold beyond the contract too. Within it, unclean recovery must elect
a complete replica (002, 5.3.2): LeaderCompleteness is asked of that leader as of any other. Strategies `proactive` and
`manual` promise nothing: what their choice loses is noted.

**Without ELR** (before KIP-966) the contract is the same, and not kept: a lossy power cut of the last member of an ISR
loses committed records when that one is elected again, Last Replica Standing. It violates LeaderCompleteness then, and
nothing before: until its election it is in the ISR because the ISR cannot shrink to nobody (000, 2.8).
"""

from __future__ import annotations

from checkers.inside.violation import Violated

from .liveness.unmet import unmet
from .oracle import BALANCED, Invariants

__all__ = ["BALANCED", "Invariants", "Violated", "unmet"]
