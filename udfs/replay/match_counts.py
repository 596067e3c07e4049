"""Counts of the messages that each rule matches, over the records of a topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stackcast.udfs.delivery.senders import Senders, with_columns
from stackcast.udfs.filters.compiler.compile import table_of_texts
from stackcast.udfs.filters.language.shapes import read_table
from stackcast.udfs.filters.row_matcher import index_of_rules
from stackcast.udfs.messages.buffers import Batch
from stackcast.udfs.messages.readers import Format

#: Columns of `MatchCounts.run`, in SQL words: the number of a rule, and messages that it matched.
SCHEMA = "rule int, messages bigint"
_ARROW = pa.schema([("rule", pa.int32()), ("messages", pa.int64())])
#: Events that are matched at once times rules, at most: so many pairs there may be.
_PAIRS = 1 << 24


class MatchCounts:
    """Counts the messages that each of many rules matches.

    form: of the records. texts: of the rules, which are right. senders: which messages count.
    counted: bool, by rule; False for a rule with state, which depends on what came before.
    Picklable.
    """

    def __init__(self, form: Format, texts: Sequence[str], senders: Senders | None = None) -> None:
        specification = form.specification
        table = table_of_texts(texts, read_table(texts, specification), specification)
        self.counted = np.ones(len(texts), np.bool_)
        self.counted[[*table.kept, *table.updates]] = False
        self._rules = np.flatnonzero(self.counted)
        plain = table if self.counted.all() else table.select(self._rules)
        self._index = index_of_rules(plain, len(self._rules), specification)
        self._senders = senders or Senders()
        fields, columns = with_columns(self._senders.fields, self._index.definitions)
        self._reader = form.reader(fields, ())
        self._columns = list(columns)
        self._step = max(64, _PAIRS // max(1, len(self._rules)))

    def run(
        self, since: Mapping[int, NDArray[np.int64]]
    ) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        """Returns a function for ``mapInArrow`` over records, see
        `stackcast.udfs.delivery.deliver.deliver`.

        since: by partition, the offset from which on each rule counts, int64[rules]. It yields rows
        of `SCHEMA`, none for rules that matched nothing.
        """

        def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            counts = np.zeros(len(self._rules), np.int64)
            for batch in batches:
                self._add(counts, Batch.of_arrow(batch), since)
            found = np.flatnonzero(counts)
            columns: list[Any] = [self._rules[found].astype(np.int32), counts[found]]
            yield pa.RecordBatch.from_arrays([pa.array(each) for each in columns], schema=_ARROW)

        return counted

    def _add(
        self,
        counts: NDArray[np.int64],
        batch: Batch,
        since: Mapping[int, NDArray[np.int64]],
    ) -> None:
        messages, _ = self._senders.of(batch, self._reader.read(batch).messages)
        partition = batch.partition[messages.packet]
        offset = batch.offset[messages.packet]
        sound = messages.message_reason == 0
        present = messages.present
        for one in np.unique(partition).tolist():
            mine = np.flatnonzero(sound & (partition == one))
            begin = since[one][self._rules]
            for at in range(0, len(mine), self._step):
                some = mine[at : at + self._step]
                event, rule = self._index.pairs(
                    messages.message_type[some],
                    messages.values[self._columns][:, some],
                    None if present is None else present[self._columns][:, some],
                )
                rule = rule[offset[some][event] >= begin[rule]]
                counts += np.bincount(rule, minlength=len(counts))
