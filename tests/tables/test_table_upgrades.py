"""Which constraints of earlier versions are renewed, and how."""

from __future__ import annotations

import pytest

import schemas
from jobs.adapters.tables.upgrades import CONSTRAINTS, steps

pytestmark = pytest.mark.unit

LINKS = schemas.read_text("tables/links.sql")
FORMER = {"delta.constraints.link_id_14_bits": "link_id BETWEEN 1 AND 16383"}
ADD = "ADD CONSTRAINT link_id_fits_label CHECK (link_id BETWEEN 1 AND 1073741823)"
DROP = "DROP CONSTRAINT link_id_14_bits"


def test_a_constraint_of_another_name_is_added_before_the_former_goes():
    assert steps("links", LINKS, FORMER) == [ADD, DROP]


def test_who_was_cut_off_in_between_does_the_rest():
    half = FORMER | {"delta.constraints.link_id_fits_label": "x"}
    assert steps("links", LINKS, half) == [DROP]


@pytest.mark.parametrize(
    "properties",
    [{}, {"delta.constraints.link_id_14_bits": "link_id < 99"}, {"other": "x"}],
)
def test_what_is_not_as_we_made_it_stays(properties):
    assert steps("links", LINKS, properties) == []


@pytest.mark.parametrize("former", CONSTRAINTS, ids=lambda former: former.name)
def test_every_former_constraint_has_one_of_today(former):
    text = schemas.read_text(f"tables/{former.table}.sql")
    found = steps(former.table, text, {f"delta.constraints.{former.name}": former.condition})
    drop = f"DROP CONSTRAINT {former.name}"
    (add,) = (step for step in found if step != drop)
    assert drop in found and add.startswith(f"ADD CONSTRAINT {former.now} CHECK (")
    assert former.condition not in add
