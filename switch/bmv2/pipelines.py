"""Pipelines as Python functions: tables are looked up and their actions written out in place.

``e`` is the row that a table gave: the number of the action, then its parameters. An action that
exits returns True from the function that it stands in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stackcast.switch.bmv2.actions import Actions
from stackcast.switch.bmv2.expressions import Expressions
from stackcast.switch.bmv2.flow import Flow
from stackcast.switch.bmv2.forms import TableForm, action_ids, table_form
from stackcast.switch.bmv2.layout import Layout
from stackcast.switch.bmv2.primitives import Primitives
from stackcast.switch.bmv2.source import Coverage, PythonSource, refuse
from stackcast.switch.bmv2.values import Value, constant

Json = Mapping[str, Any]
Follow = Callable[[str | None], None]


class Pipelines:
    """Writes the functions ``ingress`` and ``egress``. ``tables``: all that were met, by name."""

    def __init__(
        self,
        config: Json,
        layout: Layout,
        source: PythonSource,
        primitives: Primitives,
        coverage: Coverage,
        functions: list[list[str]],
    ) -> None:
        self._config = config
        self._layout = layout
        self._source = source
        self._primitives = primitives
        self._expressions: Expressions = primitives.expressions
        self._coverage = coverage
        self._functions = functions
        self._bodies = Actions(source, primitives, coverage, functions)
        self._actions: dict[int, Json] = {each["id"]: each for each in config["actions"]}
        self._meter_targets = {
            each["name"]: each.get("result_target") for each in config.get("meter_arrays", ())
        }
        self.tables: dict[str, TableForm] = {}

    def write(self, name: str) -> None:
        """Write the function of a pipeline."""
        pipelines = {each["name"]: each for each in self._config["pipelines"]}
        if name not in pipelines:
            raise refuse(f"pipeline {name!r}", "it is missing")
        pipeline = pipelines[name]
        for profile in pipeline.get("action_profiles", ()):
            what = f"action profile {profile['name']!r}"
            raise refuse(what, "action profiles and selectors are not supported")
        nodes: dict[str, Callable[[Follow], None]] = {}
        next_of: dict[str, list[str | None]] = {}
        for table in pipeline.get("tables", ()):
            next_of[table["name"]] = nexts = self._nexts(table)
            nodes[table["name"]] = self._table_writer(table, len(set(nexts)) > 1)
        for each in pipeline.get("conditionals", ()):
            next_of[each["name"]] = [each["true_next"], each["false_next"]]
            nodes[each["name"]] = self._conditional_writer(each)
        for each in pipeline.get("action_calls", ()):
            next_of[each["name"]] = [each["next_node"]]
            nodes[each["name"]] = self._call_writer(each)
        flow: Flow[str] = Flow(
            self._source,
            f"pipeline {name!r}",
            next_of,
            lambda node, follow: nodes[node](follow),
            self._functions,
        )
        with self._source.aside() as lines, self._source.block(f"def {name}(P):"):
            self._source.line("F = P.fields")
            flow.write(pipeline["init_table"])
        self._functions.append(lines)

    def _conditional_writer(self, each: Json) -> Callable[[Follow], None]:
        def write(follow: Follow) -> None:
            code = self._expressions.condition(each["expression"])
            self._primitives.note_reads()
            if each["true_next"] == each["false_next"]:
                return
            with self._source.block(f"if {code}:"):
                self._coverage.mark("if", each["name"], each)
                follow(each["true_next"])
            with self._source.block("else:"):
                self._coverage.mark("else", each["name"], each)
                follow(each["false_next"])

        return write

    def _call_writer(self, each: Json) -> Callable[[Follow], None]:
        return lambda follow: self._bodies.write(self._actions[each["action_id"]], ())

    # -- tables

    def _nexts(self, table: Json) -> list[str | None]:
        """All nodes that may come after a table."""
        after = self._after(table)
        numbers = action_ids(table, self._actions.values())
        nexts = [after(number, hit) for number in numbers for hit in (True, False)]
        return nexts if table.get("default_entry") else [*nexts, after(-1, False)]

    def _table_writer(self, table: Json, branches: bool) -> Callable[[Follow], None]:
        codes = [self._key(each) for each in table["key"]]
        widths = tuple(width for _, width, _ in codes)
        form = table_form(len(self.tables), table, self._actions, widths)
        self.tables[form.name] = form

        def write(follow: Follow) -> None:
            for _, _, slot in codes:
                self._expressions.reads.add(slot)
            self._primitives.note_reads()
            self._coverage.mark("table", form.name, table)
            self._table(table, form, [code for code, _, _ in codes], branches, follow)

        return write

    def _key(self, each: Json) -> tuple[str, int, int]:
        """Code, width and slot of a field of a key; 0 where its header is not valid."""
        target = each["target"]
        if each["match_type"] == "valid":
            header = self._layout.header(target if isinstance(target, str) else target[0])
            return f"F[{header.valid}]", 1, header.valid
        if isinstance(target, Mapping):
            # So p4c writes a field of an element that is chosen at run time.
            value = self._expressions.data({"type": "expression", "value": target})
            if value.high is None or value.low != 0:
                raise refuse(f"key {each.get('name')!r}", "its width is not known")
            return value.code, value.high.bit_length(), -1
        slot, form = self._layout.field(target[0], target[1])
        header = self._layout.header(target[0])
        code = f"F[{slot}]"
        if form.signed:
            code = f"{code} & {(1 << form.width) - 1:#x}"
        if each.get("mask") is not None:
            code = f"{code} & {int(each['mask'], 16):#x}"
        if not header.metadata and target[1] != "$valid$":
            code = f"{code} if F[{header.valid}] else 0"
        return code, form.width, slot

    def _table(
        self, table: Json, form: TableForm, key: list[str], branches: bool, follow: Follow
    ) -> None:
        line = self._source.line
        by_hit = "__HIT__" in table["next_tables"] or "__MISS__" in table["next_tables"]
        after = self._after(table)
        if not key:
            if form.default_constant:
                self._default(form)
                if branches:
                    follow(after(form.default[0], False))
                return
            line(f"e = defaults[{form.number}]")
            self._dispatch(form)
            if branches:
                if by_hit:
                    follow(after(-1, False))
                else:
                    self._switch(form, after, follow)
            return
        code = key[0] if len(key) == 1 else f"({', '.join(key)})"
        if len(key) == 1 and " if " not in code and not form.ranked:
            line(f"e = get{form.number}({code})")
        else:
            line(f"k = {code}")
            line(f"e = get{form.number}(k)")
        if form.ranked:
            line(f"if e is None: e = find{form.number}(k)")
        if not form.default_constant:
            hit = self._source.fresh("h")
            line(f"{hit} = e")
            with self._source.block("if e:"):
                self._hit(table, form)
            line(f"else: e = defaults[{form.number}]")
            self._dispatch(form)
            if branches and by_hit:
                with self._source.block(f"if {hit}:"):
                    follow(after(-1, True))
                with self._source.block("else:"):
                    follow(after(-1, False))
        else:
            chosen = self._source.fresh("a") if branches and not by_hit else None
            with self._source.block("if e:"):
                self._hit(table, form)
                self._dispatch(form)
                if chosen:
                    line(f"{chosen} = e[0]")
                elif branches:
                    follow(after(-1, True))
            with self._source.block("else:"):
                self._default(form)
                if chosen:
                    line(f"{chosen} = {form.default[0]}")
                elif branches:
                    follow(after(form.default[0], False))
            if chosen:
                self._switch(form, after, follow, chosen)
            return
        if branches and not by_hit:
            self._switch(form, after, follow)

    def _after(self, table: Json) -> Callable[[int, bool], str | None]:
        """The next node after an action (number, -1: none), hit or miss."""
        nexts = table["next_tables"]
        otherwise = table.get("base_default_next")

        def after(action: int, hit: bool) -> str | None:
            word = "__HIT__" if hit else "__MISS__"
            if word in nexts:
                return nexts[word]  # type: ignore[no-any-return]
            name = self._actions[action]["name"] if action >= 0 else None
            return nexts.get(name, otherwise)  # type: ignore[no-any-return]

        return after

    def _hit(self, table: Json, form: TableForm) -> None:
        if meter := table.get("direct_meters"):
            # Direct meters have no rates here, so that every packet is green.
            slot, _ = self._layout.field(*self._meter_targets[meter])
            self._source.line(f"F[{slot}] = 0")
        if form.counted:
            self._source.line("c = e[-1]")
            self._primitives.raise_cell()

    def _default(self, form: TableForm) -> None:
        """The default action, with its data written in."""
        if form.default[0] >= 0:
            params = [constant(value) for value in form.default[1:]]
            self._bodies.write(self._actions[form.default[0]], params)

    def _dispatch(self, form: TableForm) -> None:
        """Run the action that row ``e`` names."""
        head = "if"
        for action in form.actions.values():
            body = self._actions[action.number]
            if not body["primitives"] and not self._coverage.wanted:
                continue
            params = [
                Value(f"e[{place}]", "data", 0, (1 << width) - 1)
                for place, (_, width) in enumerate(action.params, 1)
            ]
            with self._source.block(f"{head} e[0] == {action.number}:"):
                self._bodies.write(body, params)
            head = "elif"

    def _switch(
        self,
        form: TableForm,
        after: Callable[[int, bool], str | None],
        follow: Follow,
        chosen: str = "e[0]",
    ) -> None:
        """Go on where the action that ran says."""
        ways: dict[str | None, list[int]] = {}
        for action in form.actions.values():
            ways.setdefault(after(action.number, True), []).append(action.number)
        if form.default[0] < 0:
            ways.setdefault(after(-1, False), []).append(-1)
        choice = chosen
        if chosen == "e[0]" and len(ways) > 2:
            choice = self._source.fresh("a")
            self._source.line(f"{choice} = e[0]")
        *first, (last, _) = ways.items()
        head = "if"
        for way, numbers in first:
            test = f"== {numbers[0]}" if len(numbers) == 1 else f"in {tuple(numbers)}"
            with self._source.block(f"{head} {choice} {test}:"):
                follow(way)
            head = "elif"
        with self._source.block("else:"):
            follow(last)
