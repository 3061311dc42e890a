"""Which final log is known of a partition whose begin was deleted while it was read."""

from __future__ import annotations

from checkers.log.scope import ANYWHERE, Options
from spark_history.log import NEVER, FinalReads

MOVES = Options(log_start=ANYWHERE)
#: The log ended at 171. Offsets 91 to 103 were read, then the log began at 143, and the rest was read.
JUMPED = FinalReads(((91, 104), (143, 171)), 91, 171, 1000, 7, 91, 169)


def test_what_was_read_after_the_last_gap_is_the_final_log() -> None:
    assert MOVES.complete(JUMPED)
    assert MOVES.final(JUMPED) == FinalReads(((143, 171),), 143, 171, 1000, 7, 143, 169)


def test_a_gap_in_a_log_that_does_not_move_is_one() -> None:
    assert not Options(log_start=91).complete(JUMPED) and Options(log_start=91).final(JUMPED) is JUMPED


def test_a_log_of_which_all_was_deleted_meanwhile_is_empty() -> None:
    reads = FinalReads(((91, 104),), 91, 171, 1000, 7, 91, 171)
    assert MOVES.complete(reads)
    final = MOVES.final(reads)
    assert (final.covered, final.start, final.first, final.end) == ((), 171, NEVER, 171)


def test_reading_that_ended_before_the_end_is_not_complete() -> None:
    assert not MOVES.complete(FinalReads(((91, 104),), 91, 171, 1000, 7, 91, 104))


def test_an_empty_answer_at_the_end_leaves_what_was_read_before() -> None:
    reads = FinalReads(((91, 171),), 91, 171, 1000, 7, 91, 171)
    assert MOVES.final(reads).covered == ((91, 171),)


def test_parts_of_a_log_are_merged() -> None:
    parts = [FinalReads(((0, 5),), 0, 5, 10, 1, 0, 3), FinalReads(((5, 9),), 5, 9, 11, 2, 5, 7)]
    assert FinalReads.merge(parts) == FinalReads(((0, 9),), 0, 9, 11, 2, 0, 7)
