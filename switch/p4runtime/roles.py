"""Which roles a switch's owner has configured, and who may take which.

P4Runtime leaves it to the switch what a role may do. Here the program gives tables to roles, by
``@p4runtime_role``, and the owner may add roles that have all else, as the default one: the other
tables, multicast groups, and the program. For any role, the default one among them, the owner may
say whose certificates take it; one of which nothing is said is for everybody.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from google.rpc import code_pb2

from stackcast.switch.p4runtime.refusal import Refusal
from stackcast.udfs.errors import LabError

ANYBODY = "*"


class Roles:
    """The roles that an owner configured.

    takers: by role, names in certificates (common or alternative) of who may take it, `ANYBODY`
    among them for all; "" is the default role.
    """

    def __init__(self, takers: Mapping[str, Collection[str]] | None = None) -> None:
        self._takers = {role: frozenset(names) for role, names in (takers or {}).items()}

    def __contains__(self, role: str) -> bool:
        return role in self._takers

    def check(self, role: str, client: Collection[str]) -> None:
        """Refuses with PERMISSION_DENIED who may not take a role.

        client: the names in its certificate, none if it showed none.
        """
        takers = self._takers.get(role)
        if takers is None or ANYBODY in takers or not takers.isdisjoint(client):
            return
        who = " or ".join(sorted(client)) or "a client without a certificate"
        raise Refusal(code_pb2.PERMISSION_DENIED, f"{who} may not use {_named(role)}")


def _named(role: str) -> str:
    return f"role {role!r}" if role else "the default role"


def read_roles(words: Collection[str]) -> Roles:
    """Reads ``ROLE=NAME,NAME`` of a command line; raises LabError ``BAD_SWITCH``."""
    takers: dict[str, list[str]] = {}
    for each in words:
        role, equals, names = each.partition("=")
        found = [name for name in names.split(",") if name]
        if not equals or not found or role in takers:
            raise LabError(
                "BAD_SWITCH",
                f"--role {each}: expected ROLE=NAME,NAME with names of certificates, or ROLE=* for "
                "all clients, each role once; an empty ROLE is the default role",
            )
        takers[role] = found
    return Roles(takers)
