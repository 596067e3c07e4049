"""Rules with state, brute force: the interpreter over each source, batch after batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stackcast.udfs.filters.meaning.evaluate import is_stateful
from stackcast.udfs.filters.meaning.interpreter import EventResult, Interpreter
from stackcast.udfs.filters.nodes import Forward, Rule
from stackcast.udfs.filters.subscriptions import CheckedRule
from stackcast.udfs.messages.specification import Specification


def keeps_state(rule: CheckedRule) -> bool:
    """True if a rule reads state or updates it."""
    return bool(rule.updates) or is_stateful(rule.condition)


class Timeline:
    """Works out the receivers of each source's events under the rules that keep state.

    rules: those that the next event meets. All messages of ``specification`` must have clocks.
    Slow: an event at a time.
    """

    def __init__(self, specification: Specification) -> None:
        self._specification = specification
        self.rules: tuple[Rule, ...] = ()
        self._sources: dict[bytes, Interpreter] = {}

    def begin(self, rules: Sequence[CheckedRule]) -> None:
        """The rules with state from the next event on; of any source, also those that rest.

        Cells that they do not name are forgotten.
        """
        made = tuple(Rule(r.condition, (Forward(r.receivers), *r.updates)) for r in rules)
        if made == self.rules:
            return
        self.rules = made
        before, self._sources = self._sources, {}
        for source, earlier in before.items() if made else ():
            self._sources[source] = self._interpreter()
            self._sources[source].carry(earlier)

    def step(self, source: bytes, event: Mapping[str, int]) -> EventResult:
        """Lets the next event of a source pass; returns the rules that it matches, by their place
        in `rules`, and the hosts that are owed it."""
        if source not in self._sources:
            self._sources[source] = self._interpreter()
        return self._sources[source].step(event)

    def _interpreter(self) -> Interpreter:
        # Cells must be named as they are in the stream, to be the same in the next version.
        return Interpreter(self.rules, self._specification, None)
