"""bank (jepsen.tests.bank): transfers between accounts, and reads of all balances.

Transfers neither make money nor destroy it, and a read is of one moment: so the balances of each ok read add up to the
same total, and none is below zero unless that is allowed. Of each read the first of these is told:

    unexpected-key  a read of an account that there is not
    nil-balance     an account without a balance
    wrong-total     the balances do not add up to the total
    negative-value  a balance below zero, unless the plan's `negative_balances` allows them

The plan says what there is: `accounts` (a list), `total_amount`. Without them, the accounts are those of the first ok
read, and the total is that of the first ok read that has no nil.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from checkers.models.invariants.history import Found, History, Row, Told, few
from spark_history.errors import HistoryError


def judge(history: History) -> Found:
    history.only("read", "transfer")
    negative = history.option("negative_balances", bool, "true or false", False)
    total = history.option("total_amount", int, "an integer", None)
    given = history.option("accounts", list, "a list of accounts", None)
    accounts = None if given is None else {_name(str(each)) for each in given}
    known_by: Row | None = None
    found = Found(counts={"errors": 0})
    for row in history.ok("read"):
        balances = _balances(history, row)
        if accounts is None:
            accounts = set(map(_name, balances))
        if total is None and None not in balances.values():
            total, known_by = sum(balances.values()), row
        told = _wrong(row, balances, accounts, total, negative, known_by)
        if told is not None:
            found.told.append(told)
    found.counts["errors"] = len(found.told)
    return found


def _balances(history: History, row: Row) -> Mapping[str, Any]:
    """Raises HistoryError."""
    balances = history.value(row, "result")
    if not isinstance(balances, dict):
        raise history.must_be(row, "result", "a map of accounts to balances")
    for account, balance in balances.items():
        if balance is not None and (type(balance) not in (int, float) or not math.isfinite(balance)):
            raise HistoryError(f"operation {row['op']}: the balance of account {_name(account)} is no number")
    return balances


def _wrong(
    row: Row, balances: Mapping[str, Any], accounts: set[str], total: Any, negative: bool, known_by: Row | None
) -> Told | None:
    strange = [_name(each) for each in balances if _name(each) not in accounts]
    if strange:
        return Told("unexpected-key", f"a read found accounts that there are not ({few(strange)})", [row])
    nils = [_name(each) for each, balance in balances.items() if balance is None]
    if nils:
        return Told("nil-balance", f"a read found no balance in account {few(nils)}", [row])
    found = sum(balances.values())
    if found != total:
        since = "" if known_by is None else ", as the first read did"
        rows = [row] if known_by is None else [known_by, row]
        return Told("wrong-total", f"the balances of a read add up to {found}, and not to {total}{since}", rows)
    below = {_name(each): balance for each, balance in balances.items() if balance < 0}
    if below and not negative:
        return Told("negative-value", f"a read found balances below zero, in account {few(list(below))}", [row])
    return None


def _name(account: str) -> str:
    """As the plan has it: see spark_history.jepsen.events.plain on what an integer looks like as a key."""
    return account.removeprefix("#")
