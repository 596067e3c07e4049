"""Who publishes which state, who holds it and how far each is, from the tables."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Any

from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.udfs.states.messages import UPDATES, MessageKind, group_of

Row = dict[str, Any]


def overview(tables: Tables, name: str = "") -> list[Row]:
    """Returns the states, by number, or the one of a name.

    Of each: state, name, group (IPv4), segments, publishers and replicas. Of a publisher: vnf,
    name, host, alive, newest (None: nothing yet). Of a replica: vnf, name, host, live_since, and
    ``behind``, by the number of each publisher, how many updates it is known to lack; None: it is
    not known to have any.
    """
    programs = {row["vnf"]: row for row in tables.rows("vnfs")}
    publishers = _by_state(tables.rows("state_publishers"))
    replicas = _by_state(row for row in tables.rows("state_subscriptions") if row["subscribed"])
    positions = {
        (row["state"], row["vnf"], row["publisher"]): row["update_number"]
        for row in tables.rows("state_positions")
    }

    def replica(row: Row) -> Row:
        behind = {}
        for each in publishers.get(row["state"], []):
            place = positions.get((row["state"], row["vnf"], each["vnf"]))
            newest = each["newest_update"]
            if newest is not None:
                behind[each["vnf"]] = None if place is None else _lacks(place, newest)
        return {**_who(programs, row["vnf"]), "live_since": row["live_since"], "behind": behind}

    def publisher(row: Row) -> Row:
        alive = programs.get(row["vnf"], {}).get("alive", False)
        who = _who(programs, row["vnf"])
        return {**who, "alive": alive, "newest": row["newest_update"]}

    return [
        {
            "state": row["state"],
            "name": row["name"],
            "group": str(IPv4Address(group_of(MessageKind.PUBLISH, row["state"]))),
            "segments": row["segments"],
            "publishers": [publisher(each) for each in publishers.get(row["state"], [])],
            "replicas": [replica(each) for each in replicas.get(row["state"], [])],
        }
        for row in sorted(tables.rows("states"), key=lambda row: row["state"])
        if not name or row["name"] == name
    ]


def _lacks(place: int, newest: int) -> int:
    """Updates from one to the other; none where the position is the newer of the two."""
    lacks = (newest - place) % UPDATES
    return lacks if lacks < UPDATES // 2 else 0


def _who(programs: dict[int, Row], vnf: int) -> Row:
    # Tables are read one after the other: a program may be new in one of them.
    known = programs.get(vnf, {"name": "?", "host": "?"})
    return {"vnf": vnf, "name": known["name"], "host": known["host"]}


def _by_state(rows: Any) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["vnf"]):
        found.setdefault(row["state"], []).append(row)
    return found
