"""Programs that drive a client of others: each is told what to do on its standard input and says what came of it on its
standard output, a JSON object a line. What the client itself prints goes to standard error.

Commands, `do`; `client` numbers the clients of one process:

| do | with | is answered |
| --- | --- | --- |
| check | settings | checked: problem, a sentence, or null; no connection is made |
| open | client, role ("producer" or "consumer"), settings | opened: says, which client that is; or failed |
| produce | client, topic, partition, first, count, keys | produced, once or in parts, for each of these values |
| flush | client, seconds | flushed, once all is produced or the time has passed |
| assign | client, topic, positions {partition: offset} | read, until it is assigned anew; stuck |
| offsets | client, id, topic, partitions, which ("latest" or "earliest"), seconds | offsets |
| close | client, seconds | closed |

A value is written as 8 bytes, big-endian and signed, and has as key, where `keys` is not 0, its remainder by that, in 8
bytes. Answers, `is`; times are monotonic nanoseconds:

| is | with |
| --- | --- |
| produced | first, count, complete; offset of the first (-1: not told), or error, stage ("send": it was refused at once; or "delivery"), and says, its text |
| read | client, partition, from (where the client stood), invoke, complete, runs: [offset, value, count] each, in order |
| stuck | client, partition (or null), error, says: it does not go on by itself, or only may |
| offsets | id, invoke, complete, offsets {partition: offset}, or error and says |
| failed | client, error, says: it cannot be used |

A program ends by itself with its standard input.
"""  # noqa: E501
