"""Programs that drive a client of others: each is told what to do on its standard input and says what came of it on its
standard output, a JSON object a line. What the client itself prints goes to standard error.

Commands, `do`; `client` numbers the clients of one process:

| do | with | is answered |
| --- | --- | --- |
| check | settings | checked: problem, a sentence, or null; no connection is made |
| open | client, role ("producer", "consumer", "member" or "transactor"), settings; those of a transactor's consumer begin with "consumer." | opened: says, which client that is; or failed |
| produce | client, topic, partition, first, count, keys | produced, once or in parts, for each of these values |
| flush | client, seconds | flushed, once all is produced or the time has passed |
| assign | client, topic, positions {partition: offset} | read, until it is assigned anew; stuck |
| offsets | client, id, topic, partitions, which ("latest" or "earliest"), seconds | offsets |
| join | client, topic, commit ("after" or "before" processing), mode ("sync", "async" or "auto") | member, as it goes on |
| pause | client, seconds | member, of kind pause and resume |
| committed | client, id, topic, partitions, seconds | offsets, those that are committed; null: nothing is |
| start | client, id, topic, positions {partition: offset}, or null and partitions: what its group has committed | started |
| poll | client, id, seconds | polled |
| txn | client, id, operations: ["send", partition, value] or ["poll"] each, seconds of a poll, end ("commit" or "abort"), offsets {partition: offset} to be committed, or null: of what it polls | txn |
| close | client, seconds | closed |

A value is written as 8 bytes, big-endian and signed, and has as key, where `keys` is not 0, its remainder by that, in 8
bytes. Answers, `is`; times are monotonic nanoseconds:

| is | with |
| --- | --- |
| produced | first, count, complete; offset of the first (-1: not told), or error, stage ("send": it was refused at once; or "delivery"), and says, its text |
| read | client, partition, from (where the client stood), invoke, complete, runs: [offset, value, count] each, in order |
| stuck | client, partition (or null), error, says: it does not go on by itself, or only may |
| offsets | id, invoke, complete, offsets {partition: offset}, or error and says |
| member | client, kind, invoke, complete, generation (null: not told) and, by kind, as of GROUP_EVENTS of spark_history/schema.py: partitions (of assign, revoke, lose: those), ranges {partition: [start, end)} (of poll, process), runs {partition: [offset, value, count] each} (of poll), offsets {partition: end} (of commit, reset), id (of commit, which is told as it begins, without complete, and as it ends), error |
| started | id, invoke, complete; error and says, if it failed |
| polled | id, invoke, complete, records: [partition, offset, value] each, or error and says |
| txn | id, invoke, complete, outcome (of the transaction: "ok": committed; "fail": it will never be; "info"), sent {value: offset} as acknowledged, polled: [position in operations, records] each; error, says, and aborted: whether it was, then |
| failed | client, error, says: it cannot be used |

A program ends by itself with its standard input.
"""  # noqa: E501
