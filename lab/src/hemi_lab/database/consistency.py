"""The TPC-C specification's consistency conditions (clause 3.3.2), as queries for violations.

Each query returns the rows that violate its condition, so a consistent database gives none. The
conditions hold whenever no transaction is running, except for condition 11, which holds only after
the load.
"""

from __future__ import annotations

from dataclasses import dataclass

from .server import MariaDb
from .settings import Checks

_SHOWN_ROWS = 5


@dataclass(frozen=True)
class Condition:
    """One condition."""

    number: int
    """Number of the clause: 3.3.2.`number` of the specification."""
    statement: str
    breaking: str
    """The query for rows that violate it."""
    after_load_only: bool = False


@dataclass(frozen=True)
class Finding:
    """The result of checking a condition."""

    number: int
    statement: str
    violations: int
    examples: list[str]
    """A few of the violating rows, as `column=value` texts."""
    query: str

    @property
    def holds(self) -> bool:
        """True if no row violates it."""
        return self.violations == 0


# Order lines and history are summed first. Joining them row by row would count rows twice.
_ORDERS_BY_DISTRICT = "SELECT o_w_id, o_d_id, {what} FROM orders GROUP BY o_w_id, o_d_id"
_PAID_BY_CUSTOMER = """SELECT h_c_w_id, h_c_d_id, h_c_id, SUM(h_amount) AS paid
  FROM history GROUP BY h_c_w_id, h_c_d_id, h_c_id"""
_DELIVERED_TO_CUSTOMER = """SELECT o_w_id, o_d_id, o_c_id, SUM(ol_amount) AS delivered
  FROM orders JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
  WHERE ol_delivery_d IS NOT NULL GROUP BY o_w_id, o_d_id, o_c_id"""

CONDITIONS = (
    Condition(
        1,
        "W_YTD = sum(D_YTD) of each warehouse",
        """SELECT w_id, w_ytd, SUM(d_ytd) AS sum_d_ytd FROM warehouse
           LEFT JOIN district ON d_w_id = w_id GROUP BY w_id, w_ytd
           HAVING NOT w_ytd <=> sum_d_ytd""",
    ),
    Condition(
        2,
        "D_NEXT_O_ID - 1 = max(O_ID) = max(NO_O_ID) of each district",
        f"""SELECT d_w_id, d_id, d_next_o_id, last_order, last_new_order FROM district
           LEFT JOIN ({_ORDERS_BY_DISTRICT.format(what="MAX(o_id) AS last_order")}) AS o
             ON o_w_id = d_w_id AND o_d_id = d_id
           LEFT JOIN (SELECT no_w_id, no_d_id, MAX(no_o_id) AS last_new_order
             FROM new_order GROUP BY no_w_id, no_d_id) AS n
             ON no_w_id = d_w_id AND no_d_id = d_id
           WHERE NOT d_next_o_id - 1 <=> last_order
             OR last_new_order <> d_next_o_id - 1""",
    ),
    Condition(
        3,
        "max(NO_O_ID) - min(NO_O_ID) + 1 = rows of NEW-ORDER of each district",
        """SELECT no_w_id, no_d_id, MAX(no_o_id) AS last_new_order,
             MIN(no_o_id) AS first_new_order, COUNT(*) AS new_orders
           FROM new_order GROUP BY no_w_id, no_d_id
           HAVING last_new_order - first_new_order + 1 <> new_orders""",
    ),
    Condition(
        4,
        "sum(O_OL_CNT) = rows of ORDER-LINE of each district",
        f"""SELECT d_w_id, d_id, ordered_lines, order_lines FROM district
           LEFT JOIN ({_ORDERS_BY_DISTRICT.format(what="SUM(o_ol_cnt) AS ordered_lines")}) AS o
             ON o_w_id = d_w_id AND o_d_id = d_id
           LEFT JOIN (SELECT ol_w_id, ol_d_id, COUNT(*) AS order_lines
             FROM order_line GROUP BY ol_w_id, ol_d_id) AS l
             ON ol_w_id = d_w_id AND ol_d_id = d_id
           WHERE NOT ordered_lines <=> order_lines""",
    ),
    Condition(
        5,
        "O_CARRIER_ID is null if and only if the order has a row in NEW-ORDER",
        """SELECT o_w_id, o_d_id, o_id, o_carrier_id, no_o_id FROM orders
           LEFT JOIN new_order ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id
           WHERE (o_carrier_id IS NULL) <> (no_o_id IS NOT NULL)
           UNION ALL
           SELECT no_w_id, no_d_id, NULL, NULL, no_o_id FROM new_order
           LEFT JOIN orders ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id
           WHERE o_id IS NULL""",
    ),
    Condition(
        6,
        "O_OL_CNT = rows of ORDER-LINE of each order",
        """SELECT o_w_id, o_d_id, o_id, o_ol_cnt, COUNT(ol_number) AS order_lines FROM orders
           LEFT JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
           GROUP BY o_w_id, o_d_id, o_id, o_ol_cnt HAVING o_ol_cnt <> order_lines""",
    ),
    Condition(
        7,
        "OL_DELIVERY_D is null if and only if O_CARRIER_ID of its order is null",
        """SELECT ol_w_id, ol_d_id, ol_o_id, ol_number, ol_delivery_d, o_carrier_id
           FROM order_line
           LEFT JOIN orders ON o_w_id = ol_w_id AND o_d_id = ol_d_id AND o_id = ol_o_id
           WHERE o_id IS NULL OR (ol_delivery_d IS NULL) <> (o_carrier_id IS NULL)""",
    ),
    Condition(
        8,
        "W_YTD = sum(H_AMOUNT) of each warehouse",
        """SELECT w_id, w_ytd, paid FROM warehouse
           LEFT JOIN (SELECT h_w_id, SUM(h_amount) AS paid FROM history GROUP BY h_w_id) AS h
             ON h_w_id = w_id
           WHERE NOT w_ytd <=> paid""",
    ),
    Condition(
        9,
        "D_YTD = sum(H_AMOUNT) of each district",
        """SELECT d_w_id, d_id, d_ytd, paid FROM district
           LEFT JOIN (SELECT h_w_id, h_d_id, SUM(h_amount) AS paid
             FROM history GROUP BY h_w_id, h_d_id) AS h ON h_w_id = d_w_id AND h_d_id = d_id
           WHERE NOT d_ytd <=> paid""",
    ),
    Condition(
        10,
        "C_BALANCE = sum(OL_AMOUNT) delivered - sum(H_AMOUNT) of each customer",
        f"""SELECT c_w_id, c_d_id, c_id, c_balance, delivered, paid FROM customer
           LEFT JOIN ({_DELIVERED_TO_CUSTOMER}) AS d
             ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id
           LEFT JOIN ({_PAID_BY_CUSTOMER}) AS h
             ON h_c_w_id = c_w_id AND h_c_d_id = c_d_id AND h_c_id = c_id
           WHERE c_balance <> IFNULL(delivered, 0) - IFNULL(paid, 0)""",
    ),
    Condition(
        11,
        "rows of ORDER - rows of NEW-ORDER = 7 of 10 customers (2100 of 3000) of each district",
        """SELECT d_w_id, d_id, orders, new_orders, customers FROM district
           LEFT JOIN (SELECT o_w_id, o_d_id, COUNT(*) AS orders
             FROM orders GROUP BY o_w_id, o_d_id) AS o ON o_w_id = d_w_id AND o_d_id = d_id
           LEFT JOIN (SELECT no_w_id, no_d_id, COUNT(*) AS new_orders
             FROM new_order GROUP BY no_w_id, no_d_id) AS n
             ON no_w_id = d_w_id AND no_d_id = d_id
           LEFT JOIN (SELECT c_w_id, c_d_id, COUNT(*) AS customers
             FROM customer GROUP BY c_w_id, c_d_id) AS c ON c_w_id = d_w_id AND c_d_id = d_id
           WHERE NOT orders - new_orders <=> customers - FLOOR(customers * 3 / 10)""",
        after_load_only=True,
    ),
    Condition(
        12,
        "C_BALANCE + C_YTD_PAYMENT = sum(OL_AMOUNT) delivered of each customer",
        f"""SELECT c_w_id, c_d_id, c_id, c_balance, c_ytd_payment, delivered FROM customer
           LEFT JOIN ({_DELIVERED_TO_CUSTOMER}) AS d
             ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id
           WHERE c_balance + c_ytd_payment <> IFNULL(delivered, 0)""",
    ),
)


def check(server: MariaDb, which: Checks, *, after_load: bool) -> list[Finding]:
    """Checks the conditions, or none if `which` is "none"."""
    return [
        _find(server, condition)
        for condition in CONDITIONS
        if (which == "all" or (which == "basic" and condition.number <= 4))
        and (after_load or not condition.after_load_only)
    ]


def _find(server: MariaDb, condition: Condition) -> Finding:
    query = " ".join(condition.breaking.split())
    violations = server.number(f"SELECT COUNT(*) FROM ({query}) AS breaking")
    examples: list[str] = []
    if violations:
        rows = server.query(f"SELECT * FROM ({query}) AS breaking LIMIT {_SHOWN_ROWS}", names=True)
        examples = [
            ", ".join(f"{name}={value}" for name, value in zip(rows[0], row, strict=True))
            for row in rows[1:]
        ]
    return Finding(condition.number, condition.statement, violations, examples, query)
