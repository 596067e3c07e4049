"""Tables in memory, for tests without Spark, Delta and files."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from itertools import count

import pyarrow as pa

from stackcast.jobs.adapters.app.storage_errors import StorageError
from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK
from stackcast.jobs.adapters.tables import edited, layouts
from stackcast.jobs.adapters.tables.arrow_rows import rows_of
from stackcast.jobs.adapters.tables.definitions import NAMES, definition

_ids = count(1)


@dataclass
class _Table:
    """The rows and actions of each version, rows by file, and numbers by writer."""

    id: str
    versions: list[list[dict]] = field(default_factory=lambda: [[]])
    commits: list[list[dict]] = field(default_factory=list)
    files: dict[str, list[dict]] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)


class MemoryTables:
    """An implementation of `Tables`, whose commits have the times of a clock."""

    location = "memory"
    local = True

    def __init__(self, clock=SYSTEM_CLOCK):
        self._clock = clock
        self._tables: dict[str, _Table] = {}

    def create(self, *names):
        for name in {*(names or NAMES)} - self._tables.keys():
            self._tables[name] = _Table(f"{name} {next(_ids)}")
            self._log(name, "CREATE TABLE", [])

    def drop(self, name):
        del self._tables[name]

    def version(self, name):
        return len(self._table(name).versions) - 1

    def head(self, name):
        return self._table(name).id, self.version(name)

    def commit(self, name, version):
        commits = self._table(name).commits
        return commits[version] if version < len(commits) else ()

    def arrow(self, name, version=None, since=None, columns=()):
        schema = definition(name).columns
        fields = [schema.field(column) for column in columns or schema.names]
        return pa.Table.from_pylist(self._rows(name, version, since), schema=pa.schema(fields))

    def rows(self, name, version=None, since=None, columns=()):
        rows = self._rows(name, version, since)
        if columns:
            return [{column: row[column] for column in columns} for row in rows]
        edited.check_rows(layouts.label(name, self.location, version), name, rows)
        return rows

    def _rows(self, name, version, since):
        versions = self._table(name).versions
        if version is not None and not 0 <= version < len(versions):
            raise StorageError(f"table {name} has no version {version}", gone=True)
        bounds = (since or {}).items()
        rows = versions[-1 if version is None else version]
        return copy.deepcopy([row for row in rows if all(row[c] >= bound for c, bound in bounds)])

    def rows_of_files(self, name, files):
        return copy.deepcopy([row for file in files for row in self._table(name).files[file]])

    def last_rows(self, name, key, order, column, since):
        rows = sorted(self.rows(name), key=lambda row: row[order])
        late = [row for row in rows if row[order] >= since.get(row[key], row[order])]
        return list({r[key]: {c: r[c] for c in (key, order, column)} for r in late}.values())

    def append(self, name, rows, transaction=None, epoch=None):
        numbers = self._table(name).numbers
        if not len(rows) and epoch is None:
            return True
        if epoch is not None and numbers.get(epoch[0], -1) > epoch[1]:
            return False
        if transaction is not None and numbers.get(transaction[0], -1) >= transaction[1]:
            return True
        numbers.update([number for number in (transaction, epoch) if number is not None])
        rows = self._shaped(name, rows)
        self._write(name, "WRITE", [*self._table(name).versions[-1], *rows], rows)
        return True

    def overwrite(self, name, rows):
        rows = self._shaped(name, rows)
        self._write(name, "WRITE", rows, rows, removes=bool(self._table(name).versions[-1]))

    def merge(self, name, changed, gone, keys, onto=None, unique=()):
        def key_of(row):
            return tuple(row[key] for key in keys)

        if onto is not None and onto != self.version(name):
            return False
        rows = {key_of(row): row for row in self._table(name).versions[-1]}
        removed = [rows.pop(key) for key in map(key_of, gone) if key in rows]
        added = []
        for row in self._shaped(name, changed):
            key, others = key_of(row), list(rows.values())
            if unique and (key in rows or any(o[c] == row[c] for c in unique for o in others)):
                continue
            removed += [rows[key]] if key in rows else []
            rows[key] = row
            added.append(row)
        if added or removed:
            self._write(name, "MERGE", list(rows.values()), added, removes=bool(removed))
        return bool(added or removed)

    def last_transaction(self, name, writer):
        return self._table(name).numbers.get(writer)

    def make_durable(self, name, version=None):
        pass

    prepare_overwrite = make_durable

    def _table(self, name):
        if name not in self._tables:
            raise layouts.missing(name, self.location)
        return self._tables[name]

    def _shaped(self, name, rows):
        rows = rows_of(rows) if isinstance(rows, pa.Table) else copy.deepcopy(list(rows))
        columns = definition(name).columns.names
        return [{column: row.get(column) for column in columns} for row in rows]

    def _write(self, name, operation, rows, added, removes=False):
        table, file = self._table(name), str(self.version(name))
        table.files[file], table.versions = added, [*table.versions, rows]
        self._log(name, operation, [{"add": {"path": file}}, *[{"remove": {}}] * removes])

    def _log(self, name, operation, actions):
        info = {"timestamp": int(self._clock.wall_time() * 1000), "operation": operation}
        self._table(name).commits.append([{"commitInfo": info}, *actions])
