"""What other systems refuse in a table's definition, or take where we refuse: shapes, with our code."""

from __future__ import annotations

from dataclasses import dataclass, replace

from support.neighbours.case import shape
from tidefold.domain.table.table_spec import Deletes, Engine, Group, TableSpec

TYPES = "k int, f1 int, f2 int, f3 int, f4 int"
PAIR = Group(("f1", "f2"), ("f3",))


@dataclass(frozen=True, slots=True)
class Refused:
    """A definition that is refused with `code`; `why` says why, where the other system takes it."""

    name: str
    suite: str
    test: str
    shape: TableSpec
    code: str
    why: str = ""

    @property
    def verdict(self) -> str:
        return f"differs: `{self.code}`, {self.why}" if self.why else f"agrees: `{self.code}`"


def _applying(given: TableSpec) -> TableSpec:
    return replace(given, merge=replace(given.merge, deletes=Deletes.APPLY))


ALL = [
    Refused(
        "a group names a column that is not there",
        "PartialUpdateMergeFunctionTest",
        "testSequenceGroupDefinedNoField",
        shape(TYPES, "k", Engine.PARTIAL, groups=[Group(("f1", "f2", "f7"), ("f3",))]),
        "MERGE_COLUMN",
    ),
    Refused(
        "a column in two groups",
        "PartialUpdateMergeFunctionTest",
        "testSequenceGroupRepeatDefine",
        shape(TYPES, "k", Engine.PARTIAL, groups=[PAIR, Group(("f1", "f2"), ("f4",))]),
        "MERGE_COLUMN",
    ),
    Refused(
        "deletes where groups have an order of their own",
        "PartialUpdateMergeFunctionTest",
        "testSequenceGroup (the deletes)",
        _applying(shape(TYPES, "k", Engine.PARTIAL, groups=[PAIR])),
        "DELETES_INEXACT",
        "such deletes can be ignored or quarantined; Paimon sets the columns of the group to null",
    ),
    Refused(
        "a sum of a float column",
        "PreAggregationITCase",
        "SumAggregation.testMergeInMemory (columns f and h)",
        shape("k int, f float", "k", Engine.AGGREGATE, functions="f sum"),
        "AGGREGATE_TYPE",
        "its result depends on the order of what is added",
    ),
    Refused(
        "the first value by a sequence field",
        "PreAggregationITCase",
        "FirstValueAggregation.tesUnOrderInput",
        shape("k int, a int, c string", "k", Engine.AGGREGATE, by="a", functions="a max, c first"),
        "AGGREGATE_INEXACT",
        "its order is not kept for each column; in a log of its own order `first` is allowed",
    ),
    Refused(
        "a sequence of a type without an order",
        "Scd1ForeachBatchHandlerSuite",
        "validates that the microbatch's sequencing column is orderable",
        shape("id int, seq array<string>", by="seq"),
        "ORDER_COLUMN",
    ),
]
