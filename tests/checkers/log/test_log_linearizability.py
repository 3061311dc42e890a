"""The checker on small histories, made to agree with a brute-force search and with names given by hand."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from checkers.log.scope import ANYWHERE, Options
from spark_history.errors import HistoryError
from spark_history.log import FinalReads
from tests.checkers.histories.histories import Op, Rules, check_log, mutate, names, random_history, random_rules, search
from tests.checkers.histories.random_histories import HISTORIES


def append(value: int, offset: int | None, invoke: int, complete: int | None = None, outcome: str = "ok") -> Op:
    if complete is None and outcome == "ok":
        complete = invoke + 5
    return Op("append", invoke, complete, outcome, value, offset)


def list_offsets(end: int, invoke: int, complete: int | None = None) -> Op:
    return Op("list_offsets", invoke, complete or invoke + 5, offset=end)


def read(records: dict[int, int], watermark: int, invoke: int, kind: str = "read", fetch: int | None = None) -> Op:
    start = min(records, default=0) if fetch is None else fetch
    return Op(kind, invoke, invoke + 5, offset=start, records=tuple(records.items()), high_watermark=watermark)


def final_read(*values: int, invoke: int = 1000) -> Op:
    return read(dict(enumerate(values)), len(values), invoke, "final_read", fetch=0)


BLOCKS = 10


@pytest.mark.parametrize("block", range(BLOCKS))
def test_agrees_with_brute_force_on_histories_good_and_broken(block: int) -> None:
    """And cutting the log into segments changes nothing, which is what the prefix scan is for. Batches, truncated and
    compacted logs are among the histories."""
    linearizable, histories = 0, HISTORIES // BLOCKS
    for seed in range(block * histories, (block + 1) * histories):
        random = Random(seed)
        rules = random_rules(random)
        history = random_history(random, rules=rules)
        for _ in range(random.choice([0, 1, 1, 2, 3])):
            history = mutate(history, random)
        expected = search(history, rules)
        found = check_log(history, segment_offsets=random.choice([None, None, 1, 2]), rules=rules)
        assert expected == (not names(found)), f"seed {seed}: {rules} {history} gave {found.rows}"
        linearizable += expected
    assert 0.2 < linearizable / histories < 0.8  # the comparison says something about both


@pytest.mark.parametrize("seed", range(40))
def test_segments_give_the_anomalies_that_the_whole_log_gives(seed: int) -> None:
    random = Random(10_000 + seed)
    history = random_history(random)
    for _ in range(3):
        history = mutate(history, random)
    assert names(check_log(history)) == names(check_log(history, segment_offsets=1))


WRITTEN = [append(10, 0, 0), append(11, 1, 10), append(12, 2, 20)]

BROKEN: dict[str, tuple[list[Op], set[str]]] = {
    "acknowledged, and the final log ends before": ([*WRITTEN, final_read(10, 11)], {"lost append"}),
    "acknowledged, and the final log holds another value": (
        [append(10, 0, 0), append(11, 1, 10), append(99, 1, 20), final_read(10, 99)],
        {"lost append", "inconsistent offset"},
    ),
    "read though never acknowledged, then gone": (
        [append(10, 0, 0), append(11, None, 10, outcome="info"), read({1: 11}, 2, 20), final_read(10)],
        {"lost append", "non-monotonic read"},
    ),
    "read but never written": ([append(10, 0, 0), read({0: 10, 1: 77}, 2, 10)], {"phantom"}),
    "a watermark above anything that was appended": ([append(10, 0, 0), read({0: 10}, 3, 10)], {"phantom"}),
    "failed, and read": (
        [append(10, 0, 0), append(11, None, 10, 15, "fail"), final_read(10, 11)],
        {"failed but visible"},
    ),
    "read elsewhere than acknowledged": (
        [append(10, 0, 0), append(11, 1, 10), append(12, None, 10, outcome="info"), read({2: 11}, 3, 30)],
        {"inconsistent offset"},
    ),
    "two readers differ": (
        [append(n, None, 0, outcome="info") for n in (10, 11)] + [read({0: 10}, 1, 9), read({0: 11}, 1, 9)],
        {"inconsistent offset"},
    ),
    "one record twice": (
        [append(10, 0, 0), append(11, None, 0, outcome="info"), final_read(10, 10)],
        {"duplicate"},
    ),
    "a record left out": ([*WRITTEN, read({0: 10, 2: 12}, 3, 30), final_read(10, 11, 12)], {"torn prefix"}),
    "a read that begins late": ([*WRITTEN, read({1: 11, 2: 12}, 3, 30, fetch=0)], {"torn prefix"}),
    "an offset left out of which nothing is known": (
        [append(10, 0, 0), append(11, None, 0, outcome="info"), append(12, 2, 20), read({0: 10, 2: 12}, 3, 30)],
        {"skipped offset"},
    ),
    "an offset returned twice": (
        [*WRITTEN, Op("read", 30, 35, offset=0, records=((0, 10), (1, 11), (1, 11)), high_watermark=3)],
        {"skipped offset"},
    ),
    "an offset returned twice, and another not at all": (
        [*WRITTEN, Op("read", 30, 35, offset=0, records=((0, 10), (0, 10), (2, 12)), high_watermark=3)],
        {"torn prefix"},
    ),
    "offsets out of order": (
        [*WRITTEN, Op("read", 30, 35, offset=0, records=((1, 11), (0, 10)), high_watermark=3)],
        {"skipped offset"},
    ),
    "a reader sees another value than one before it": (
        [append(n, None, 0, outcome="info") for n in (10, 11)] + [read({0: 10}, 1, 10), read({0: 11}, 1, 20)],
        {"inconsistent offset", "non-monotonic read"},
    ),
    "a later append before an earlier one": (
        [append(10, 1, 0), append(11, 0, 100), final_read(11, 10)],
        {"real-time inversion"},
    ),
    "read before it was appended": ([append(10, 0, 100), read({0: 10}, 1, 0)], {"real-time inversion"}),
    "observed before it was invoked, never acknowledged": (
        [append(10, None, 100, outcome="info"), read({0: 10}, 1, 0)],
        {"real-time inversion"},
    ),
    "an end that does not cover what was acknowledged": ([*WRITTEN, list_offsets(2, 100)], {"stale end of log"}),
    "an end that goes backwards": (
        [append(n, None, 0, outcome="info") for n in range(4)] + [list_offsets(3, 10), list_offsets(2, 20)],
        {"non-monotonic read"},
    ),
    "an end below what was read": (
        [append(n, None, 0, outcome="info") for n in range(4)] + [read({0: 0, 1: 1}, 2, 10), list_offsets(1, 20)],
        {"non-monotonic read"},
    ),
    "filled too late": (
        [append(10, None, 100, outcome="info"), append(11, 1, 0), final_read(10, 11, invoke=200)],
        {"real-time inversion"},
    ),
    "acknowledged as a duplicate sequence, without an offset, and then nowhere": (
        [append(10, 0, 0), append(11, None, 10), final_read(10)],
        {"lost append"},
    ),
    "a gap that only a later append could fill": (
        [append(11, 1, 0), append(10, None, 100, outcome="info")],
        {"phantom"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_names_what_is_broken(case: str) -> None:
    history, expected = BROKEN[case]
    assert not search(history)
    assert names(check_log(history)) == expected


SOUND: dict[str, list[Op]] = {
    "everything in its place": [*WRITTEN, read({0: 10, 1: 11}, 3, 30), list_offsets(3, 30), final_read(10, 11, 12)],
    "touching operations are concurrent": [append(10, 1, 0, 5), append(11, 0, 5, 9)],
    "indeterminate, found": [append(10, None, 0, outcome="info"), final_read(10)],
    "indeterminate, given up by the client and done later": [
        append(10, None, 0, 3, "info"), list_offsets(0, 50), read({0: 10}, 1, 90),
    ],
    "indeterminate, not found": [append(10, 0, 0), append(11, None, 5, outcome="info"), final_read(10)],
    "failed, not found": [append(10, 0, 0), append(11, None, 5, 9, "fail"), final_read(10)],
    "a gap that an indeterminate append fills": [append(10, None, 0, outcome="info"), append(11, 1, 20)],
    "acknowledged while the final read was going on": [append(10, 0, 0), final_read(10, invoke=20), append(11, 1, 22)],
    "a fetch that begins within a batch": [*WRITTEN, read({0: 10, 1: 11, 2: 12}, 3, 30, fetch=1)],
    "a retry acknowledged as a duplicate sequence, without an offset": [
        append(10, 0, 0), append(11, None, 10), final_read(10, 11),
    ],
    "an empty log": [list_offsets(0, 0), final_read()],
}  # fmt: skip


@pytest.mark.parametrize("case", SOUND)
def test_finds_nothing_in_a_sound_history(case: str) -> None:
    assert search(SOUND[case])
    assert check_log(SOUND[case]).rows == []


def test_a_lagging_watermark_is_reported_but_is_no_violation() -> None:
    history = [*WRITTEN, read({0: 10}, 1, 100), final_read(10, 11, 12)]
    found = check_log(history)
    assert search(history)
    assert [row["anomaly"] for row in found.rows] == ["lagging watermark"]
    assert not names(found)


def test_without_acks_all_an_acknowledgement_need_not_be_visible() -> None:
    history = [*WRITTEN, list_offsets(1, 100), read({0: 10}, 1, 100), final_read(10, 11, 12)]
    assert names(check_log(history, acks_all=True)) == {"stale end of log"}
    assert check_log(history, acks_all=False).rows == []


def test_without_acks_all_order_among_appends_and_among_ends_still_counts() -> None:
    appends = [append(10, 1, 0), append(11, 0, 100)]
    assert names(check_log(appends, acks_all=False)) == {"real-time inversion"}
    ends = [*WRITTEN, list_offsets(3, 50), list_offsets(2, 100)]
    assert names(check_log(ends, acks_all=False)) == {"non-monotonic read"}


def test_without_final_reads_a_loss_cannot_be_claimed() -> None:
    assert check_log([*WRITTEN, read({0: 10}, 1, 4)]).rows == []


def test_a_partial_final_read_proves_no_loss() -> None:
    partial = read({0: 10}, 3, 1000, "final_read", fetch=0)
    assert check_log([*WRITTEN, partial]).rows == []


def test_one_stale_answer_is_one_violation_however_much_it_contradicts() -> None:
    history = [append(n, n, 10 * n) for n in range(50)]
    history += [list_offsets(3, 1_000), list_offsets(50, 1_100)]
    (row,) = check_log(history).rows
    assert (row["anomaly"], row["count"], row["offset"]) == ("stale end of log", 1, 3)
    assert len(row["ops"]) == 2


def test_independent_violations_are_counted_apart() -> None:
    history = [append(n, n, 100 * n) for n in range(20)]
    stale = [list_offsets(3, 790, 795), list_offsets(12, 1_490, 1_495)]
    found = check_log([*history, *stale])
    assert [row["offset"] for row in found.rows] == [3, 12]


def test_each_lost_append_is_named_with_when_it_was_acknowledged() -> None:
    found = check_log([*WRITTEN, final_read(10)])
    lost = [row for row in found.rows if row["anomaly"] == "lost append"]
    assert [(row["offset"], row["value"]) for row in lost] == [(1, 11), (2, 12)]
    assert "11 (append op 1) was acknowledged at 0.000 s at offset 1 of chaos-0" in lost[0]["message"]


def test_what_lay_below_the_start_of_a_truncated_log_is_not_lost() -> None:
    kept = read({2: 12}, 3, 1000, "final_read", fetch=2)
    for rules in (Rules(log_start=2), Rules(log_start=ANYWHERE)):
        assert search([*WRITTEN, kept], rules)
        assert check_log([*WRITTEN, kept], rules=rules).rows == []
    from_zero = read({2: 12}, 3, 1000, "final_read", fetch=0)
    assert names(check_log([*WRITTEN, from_zero])) == {"lost append", "torn prefix"}
    assert check_log([*WRITTEN, from_zero], rules=Rules(log_start=2)).rows == []


def test_an_append_of_unknown_offset_may_have_stood_below_the_start() -> None:
    """Acknowledged with DUPLICATE_SEQUENCE_NUMBER, which tells no offset."""
    untold = append(9, None, 0)
    kept = read({2: 12}, 3, 1000, "final_read", fetch=0)
    assert names(check_log([untold, append(12, 2, 20), kept])) >= {"lost append"}
    for rules in (Rules(log_start=2), Rules(log_start=ANYWHERE)):
        assert search([untold, append(12, 2, 20), kept], rules)
        assert names(check_log([untold, append(12, 2, 20), kept], rules=rules)) == set()
    from_zero = [untold, append(12, 0, 20), read({0: 12}, 1, 1000, "final_read", fetch=0)]
    assert names(check_log(from_zero, rules=Rules(log_start=ANYWHERE))) == {"lost append"}


@pytest.mark.parametrize("plan", [{"settings": [1]}, {"log_start": True}, {"log_start": "x"}])
def test_a_plan_that_cannot_be_read_is_one_sentence(plan: dict[str, Any]) -> None:
    with pytest.raises(HistoryError, match="of the plan"):
        Options.of(plan, None)


def test_a_log_that_began_before_the_history_did() -> None:
    later = [append(10, 1_000, 0), append(11, 1_001, 10), read({1_000: 10, 1_001: 11}, 1_002, 50)]
    assert names(check_log(later)) == {"phantom"}
    assert check_log(later, rules=Rules(log_start=1_000)).rows == []


def test_final_reads_that_begin_late_claim_nothing_of_what_was_before() -> None:
    assert check_log([*WRITTEN, read({2: 12}, 3, 1000, "final_read", fetch=2)]).rows == []
    known = FinalReads(((2, 3),), 2, 3, 1000)
    assert not Options().complete(known)
    assert Options(log_start=2).complete(known)


def test_a_compacted_log_may_leave_out_anything_but_its_last_record() -> None:
    compacted = Rules(compacted=True)
    assert check_log([*WRITTEN, read({0: 10, 2: 12}, 3, 1000, "final_read", fetch=0)], rules=compacted).rows == []
    cut = [*WRITTEN, read({0: 10}, 1, 1000, "final_read", fetch=0)]
    assert names(check_log(cut, rules=compacted)) == {"lost append"}


@pytest.mark.parametrize("segment_offsets", [None, 1, 2])
def test_of_each_key_of_a_compacted_log_the_last_value_is_kept(segment_offsets: int | None) -> None:
    """Values 10 and 12 have one key, 11 and 13 the other."""
    written = [append(10, 0, 0), append(11, 1, 10), append(12, 2, 20), append(13, 3, 30)]
    rules = Rules(compacted=True, keys=2)

    def lost(kept: dict[int, int]) -> list[int]:
        history = [*written, read(kept, 4, 1000, "final_read", fetch=0)]
        found = check_log(history, segment_offsets=segment_offsets, rules=rules)
        assert names(found) <= {"lost append"}
        return [row["value"] for row in found.rows]

    assert lost({2: 12, 3: 13}) == [], "10 and 11 were replaced"
    assert lost({0: 10, 3: 13}) == [12]
    assert lost({3: 13}) == [12], "10 was replaced by what is lost"
    assert lost({1: 11, 3: 13}) == [12]


def test_without_idempotence_a_retried_record_may_stand_twice() -> None:
    twice = [append(10, 1, 0), append(11, 2, 10), final_read(10, 10, 11)]
    assert names(check_log(twice)) == {"duplicate"}
    found = check_log(twice, retries=True)
    assert not names(found)
    assert [row["anomaly"] for row in found.rows] == ["duplicate by retry"]
    overwritten = [append(10, 1, 0), append(11, 2, 10), append(12, 0, 10), final_read(10, 10, 11)]
    assert "duplicate" in names(check_log(overwritten, retries=True))


@pytest.mark.parametrize("segment_offsets", [None, 2])
@pytest.mark.parametrize(
    ("deletion", "is_weak"),
    [
        (Op("delete_records", 20, 25, offset=1), True),
        (Op("delete_records", 20, 25, offset=-1, high_watermark=1), True),
        (Op("delete_records", 20, None, "info", offset=-1), True),
        (Op("delete_records", 20, 25, "fail", offset=1), False),
        (Op("delete_records", 20, 25, offset=0), False),
        (Op("delete_records", 60, 65, offset=1), False),
    ],
)
def test_an_idempotent_producer_may_be_forgotten_with_what_was_deleted(
    segment_offsets: int | None, deletion: Op, is_weak: bool
) -> None:
    """Value 10 stands at offset 0 and, once its append is over, at 3."""
    history = [
        append(10, 3, 0, 50), append(11, 1, 1), append(12, 2, 10), read({0: 10, 1: 11}, 2, 12), deletion,
        read({3: 10}, 4, 1000, "final_read", fetch=3),
    ]  # fmt: skip
    found = check_log(history, segment_offsets=segment_offsets, rules=Rules(log_start=ANYWHERE))
    assert [row["anomaly"] for row in found.rows] == ["duplicate by retry" if is_weak else "duplicate"]


@pytest.mark.parametrize(
    ("settings", "is_weak"),
    [
        ({}, False), ({"log.retention.ms": "-1"}, False), ({"log.retention.ms": " 500"}, True),
        ({"log.retention.hours": "1"}, True), ({"log.retention.ms": "-1", "log.retention.hours": "1"}, False),
        ({"log.retention.bytes": "100"}, True),
    ],
)  # fmt: skip
def test_an_idempotent_producer_may_be_forgotten_with_what_was_too_old(
    settings: dict[str, str], is_weak: bool
) -> None:
    options = Options.of({"log_start": "moves", "settings": settings}, None)
    history = [
        append(10, 2, 0, 50), append(11, 1, 1), read({0: 10, 1: 11}, 2, 12),
        read({2: 10}, 3, 1000, "final_read", fetch=2),
    ]  # fmt: skip
    found = check_log(history, rules=Rules(log_start=options.log_start, retention=options.retention))
    assert [row["anomaly"] for row in found.rows] == ["duplicate by retry" if is_weak else "duplicate"]


def test_offsets_of_any_size_take_no_memory() -> None:
    far = [append(10, 1 << 50, 0), read({}, 1 << 50, 10)]
    assert names(check_log(far)) == {"phantom"}
