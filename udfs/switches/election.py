"""Election ids that refreshers ask a switch with, so that the highest that lives is primary.

P4Runtime lets nobody become primary with an id below the highest that was ever used, even if its
owner is gone. A refresher that waits must therefore be able to raise its id past a dead one, and
one that comes back must still win over those of lower rank that stood in for it. So must one of
lower rank, as long as one of higher rank stands still: a switch keeps the stream of a stopped
process. A raised id is a mark, a generation and the refresher's own id, from the highest bit down.
"""

from __future__ import annotations

_OWN_BITS = 64
_GENERATION_BITS = 32
_MARK = 0xFFFF_5AC1 << _OWN_BITS + _GENERATION_BITS
_BELOW_MARK = (1 << _OWN_BITS + _GENERATION_BITS) - 1


def rank(election_id: int) -> int:
    """Returns the own id of the refresher that asks with ``election_id``, raised or not."""
    return election_id & (1 << _OWN_BITS) - 1 if _raised(election_id) else election_id


def describe_id(election_id: int) -> str:
    """Words an election id for people: the id that a refresher was given, and the raised one."""
    own = rank(election_id)
    return str(own) if own == election_id else f"{own} (raised to {election_id:#x})"


def election_id(own: int, highest: int, taken: bool, past: int = 0) -> int | None:
    """Returns the id to ask with so as to become primary; None if another goes first.

    own: the id that the refresher was given. highest: the highest that the switch has seen.
    taken: whether a client that is primary has it. past: the highest that streams had of whoever
    has `highest` (its rank) that ended or stand still, but which the switch may take for alive.
    """
    ended = highest <= past
    if taken and rank(highest) >= own and not ended:
        return None
    if own > highest or (own == highest and not taken):
        return own
    generation = (highest & _BELOW_MARK) >> _OWN_BITS if _raised(highest) else 0
    if not taken or ended or not _raised(highest):
        generation += 1
    wanted = _MARK | generation << _OWN_BITS | own
    fits = own >> _OWN_BITS == 0 and generation >> _GENERATION_BITS == 0
    return wanted if fits and wanted > highest else None


def _raised(number: int) -> bool:
    return number & ~_BELOW_MARK == _MARK
