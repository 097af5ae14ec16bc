"""The TPC-C-like script on a real MariaDB, and the conditions that catch errors."""

from __future__ import annotations

import pytest
from database_server import TINY, LoadedServer
from hemi_lab.database.consistency import check
from hemi_lab.database.sysbench import Report, parse
from hemi_lab.database.workloads import load_of

pytestmark = pytest.mark.long

DISTRICTS = 20
CUSTOMERS = 30 * DISTRICTS


def run_events(loaded: LoadedServer, events: int, threads: int, seed: int = 7) -> Report:
    """Runs `events` transactions, rather than for a time."""
    argv = load_of(TINY, loaded.server).argv(
        f"--events={events}", "--time=0", f"--threads={threads}", "--histogram",
        f"--rand-seed={seed}", "run",
    )  # fmt: skip
    return parse(loaded.place.log.run(*argv, timeout=200))


def test_the_load_fills_the_nine_tables_as_specified(loaded: LoadedServer) -> None:
    count = loaded.server.number
    for table, rows in {
        "warehouse": 2,
        "district": DISTRICTS,
        "customer": CUSTOMERS,
        "history": CUSTOMERS,
        "orders": CUSTOMERS,
        "new_order": 9 * DISTRICTS,
        "item": 200,
        "stock": 400,
    }.items():
        assert count(f"SELECT COUNT(*) FROM {table}") == rows, table
    # Every customer of a district has one order, in another sequence than their numbers.
    distinct = "SELECT COUNT(DISTINCT o_w_id, o_d_id, o_c_id) FROM orders"
    assert count(distinct) == CUSTOMERS
    assert count("SELECT COUNT(*) FROM orders WHERE o_id = o_c_id") < CUSTOMERS / 3
    # Orders have 5 to 15 lines. Only undelivered ones have an amount.
    assert count("SELECT MIN(o_ol_cnt) FROM orders") == 5
    assert count("SELECT MAX(o_ol_cnt) FROM orders") == 15
    assert (
        count("SELECT COUNT(*) FROM order_line WHERE (ol_amount > 0) <> (ol_delivery_d IS NULL)")
        == 0
    )
    assert count("SELECT COUNT(*) FROM item WHERE i_price NOT BETWEEN 1 AND 100") == 0
    assert count("SELECT COUNT(*) FROM stock WHERE s_quantity NOT BETWEEN 10 AND 100") == 0
    # One in ten. Of 600 and 600 rows, five standard deviations are 37.
    bad_credit = count("SELECT COUNT(*) FROM customer WHERE c_credit = 'BC'")
    original = count("SELECT COUNT(*) FROM stock WHERE s_data LIKE '%ORIGINAL%'") + count(
        "SELECT COUNT(*) FROM item WHERE i_data LIKE '%ORIGINAL%'"
    )
    assert 23 <= bad_credit <= 97
    assert 23 <= original <= 97
    names = loaded.server.query(
        "SELECT c_last FROM customer WHERE c_w_id = 1 AND c_d_id = 1 AND c_id IN (1, 12, 30) "
        "ORDER BY c_id"
    )
    # Numbers 0, 11 and 29.
    assert [row[0] for row in names] == ["BARBARBAR", "BAROUGHTOUGHT", "BARABLEEING"]


def test_a_thread_plays_whole_decks(loaded: LoadedServer) -> None:
    report = run_events(loaded, 400, 1)
    done = {kind.name: kind.committed + kind.rolled_back for kind in report.kinds}
    assert done == {
        "new_order": 180,
        "payment": 172,
        "order_status": 16,
        "delivery": 16,
        "stock_level": 16,
    }


def test_the_transactions_do_what_they_say(loaded: LoadedServer) -> None:
    report = run_events(loaded, 3000, 8)
    assert report.events == 3000
    kinds = {kind.name: kind for kind in report.kinds}
    count = loaded.server.number
    new_orders = kinds["new_order"]
    assert count("SELECT COUNT(*) FROM orders") - CUSTOMERS == new_orders.committed
    assert count("SELECT COUNT(*) FROM history") - CUSTOMERS == kinds["payment"].committed
    # One in a hundred of about 1,350. 40 would be more than seven standard deviations off.
    assert 0 < new_orders.rolled_back < 40
    # A delivery takes the oldest order of each of the ten districts that has one.
    delivered = count("SELECT COUNT(*) FROM orders WHERE o_carrier_id IS NOT NULL") - 21 * DISTRICTS
    assert 0 < delivered <= 10 * kinds["delivery"].committed
    assert delivered == count("SELECT SUM(c_delivery_cnt) FROM customer")
    # Remote lines are one in a hundred, remote payments 15 in a hundred.
    remote = "SELECT COUNT(*) FROM order_line WHERE ol_supply_w_id <> ol_w_id"
    assert 0 < count(remote) == count("SELECT SUM(s_remote_cnt) FROM stock")
    assert count("SELECT COUNT(*) FROM orders WHERE o_all_local = 0") == count(
        "SELECT COUNT(DISTINCT ol_w_id, ol_d_id, ol_o_id) FROM order_line "
        "WHERE ol_supply_w_id <> ol_w_id"
    )
    abroad = count("SELECT COUNT(*) FROM history WHERE h_c_w_id <> h_w_id")
    assert 0.10 < abroad / kinds["payment"].committed < 0.20
    assert count("SELECT SUM(c_payment_cnt - 1) FROM customer") == kinds["payment"].committed
    # Stock never falls below the amount that an order leaves.
    assert count("SELECT COUNT(*) FROM stock WHERE s_quantity < 0 OR s_quantity > 100") == 0
    assert (
        count(
            "SELECT (SELECT SUM(s_ytd) FROM stock) - (SELECT SUM(ol_quantity) FROM order_line "
            "WHERE ol_o_id > 30)"
        )
        == 0
    )
    findings = check(loaded.server, "all", after_load=False)
    assert [f.number for f in findings] == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12]
    assert [f for f in findings if not f.holds] == []


def test_all_conditions_hold_after_the_load(loaded: LoadedServer) -> None:
    findings = check(loaded.server, "all", after_load=True)
    assert [f.number for f in findings] == list(range(1, 13))
    assert [f for f in findings if not f.holds] == []
    assert [f.number for f in check(loaded.server, "basic", after_load=True)] == [1, 2, 3, 4]
    assert check(loaded.server, "none", after_load=True) == []


# One corrupted row, and exactly the conditions that must notice it.
CORRUPTIONS = [
    ("UPDATE warehouse SET w_ytd = w_ytd + 0.01 WHERE w_id = 2", {1, 8}),
    ("DELETE FROM district WHERE d_w_id = 1 AND d_id = 10", {1}),
    ("UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = 1 AND d_id = 3", {2}),
    ("DELETE FROM new_order WHERE no_w_id = 1 AND no_d_id = 1 AND no_o_id = 25", {3, 5, 11}),
    ("DELETE FROM new_order WHERE no_w_id = 1 AND no_d_id = 1 AND no_o_id = 30", {2, 5, 11}),
    ("INSERT INTO new_order VALUES (1, 1, 21)", {5, 11}),
    (
        "UPDATE orders SET o_ol_cnt = o_ol_cnt + 1 WHERE o_w_id = 2 AND o_d_id = 9 AND o_id = 4",
        {4, 6},
    ),
    (
        "UPDATE orders SET o_carrier_id = NULL WHERE o_w_id = 1 AND o_d_id = 1 AND o_id = 1",
        {5, 7},
    ),
    # A line moved from one order to the next keeps the district's sum.
    (
        "UPDATE order_line SET ol_o_id = 2, ol_number = 99 "
        "WHERE ol_w_id = 1 AND ol_d_id = 1 AND ol_o_id = 1 AND ol_number = 5",
        {6},
    ),
    (
        "UPDATE order_line SET ol_delivery_d = NULL "
        "WHERE ol_w_id = 1 AND ol_d_id = 1 AND ol_o_id = 1 AND ol_number = 5",
        {7},
    ),
    # A line lost, as from a torn page.
    (
        "DELETE FROM order_line "
        "WHERE ol_w_id = 1 AND ol_d_id = 1 AND ol_o_id = 30 AND ol_number = 5",
        {4, 6},
    ),
    (
        "UPDATE history SET h_amount = h_amount + 1 "
        "WHERE h_c_w_id = 1 AND h_c_d_id = 1 AND h_c_id = 1",
        {8, 9, 10},
    ),
    ("UPDATE history SET h_d_id = 2 WHERE h_c_w_id = 1 AND h_c_d_id = 1 AND h_c_id = 1", {9}),
    (
        "UPDATE customer SET c_balance = c_balance + 0.01 "
        "WHERE c_w_id = 1 AND c_d_id = 1 AND c_id = 1",
        {10, 12},
    ),
    (
        "UPDATE customer SET c_ytd_payment = 0 WHERE c_w_id = 1 AND c_d_id = 1 AND c_id = 1",
        {12},
    ),
]


@pytest.mark.parametrize(("corruption", "seen_by"), CORRUPTIONS)
def test_a_wrong_row_breaks_its_conditions(
    loaded: LoadedServer, corruption: str, seen_by: set[int]
) -> None:
    loaded.server.query(corruption)
    findings = check(loaded.server, "all", after_load=True)
    broken = {f.number: f for f in findings if not f.holds}
    assert set(broken) == seen_by
    for finding in broken.values():
        assert finding.violations >= 1
        assert "_w_id=" in finding.examples[0] or "w_id=" in finding.examples[0]
