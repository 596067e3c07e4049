"""Steps of decimal attributes that are registered by their names, and values between two steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.messages.attributes.attribute_field import BITS, Attribute
from stackcast.udfs.messages.attributes.events import WIDTHS, Widths
from stackcast.udfs.messages.attributes.registry import Type, attribute

#: Part of a step by which a double may differ from the value that it represents.
_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Steps:
    """Steps of decimal attributes that are registered by their names.

    Attributes:
        usual: step of all names that `of_name` does not contain.
        of_name: steps by name.
    """

    usual: Decimal = Decimal("0.01")
    of_name: Mapping[str, Decimal] = field(default_factory=dict)

    @staticmethod
    def parse(text: str) -> Steps:
        """Return the steps of a text such as ``0.01,latitude=0.0000001``.

        The last of several steps for the same name counts.
        """
        steps: dict[str, Decimal] = {}
        for part in text.split(","):
            name, _, step = part.strip().rpartition("=")
            steps[name] = Decimal(step)
        return Steps(steps.pop("", Steps.usual), steps)

    def attribute(self, id: int, name: str, type: Type, widths: Widths = WIDTHS) -> Attribute:
        """Return the attribute that a name is registered as.

        A decimal has the step of its name, and as many values below 0 as above it.

        Args:
            id: id of the attribute.
            name: name of the attribute.
            type: type of the attribute.
            widths: widths of headers.
        """
        if type != "decimal":
            return attribute(id, name, type, widths=widths)
        step = self.of_name.get(name, self.usual)
        return attribute(id, name, type, step, -step * (1 << (BITS - 1)), widths)


USUAL_STEPS = Steps()


def between_steps(values: NDArray[np.float64], target: Attribute) -> NDArray[np.bool_]:
    """Return which values the attribute does not have: they are between two of its steps.

    Such a value is rounded. Values beyond both ends are not meaningful here.

    Args:
        values: values in units of the attribute, float64[n].
        target: an attribute of a type whose steps are even, so neither a float nor a text.

    Returns:
        bool[n].
    """
    farthest = max(abs(float(target.offset)), abs(float(target.most)))
    tolerance = _TOLERANCE + 2 * float(np.spacing(farthest)) / float(target.scale)
    raw = (values - float(target.offset)) / float(target.scale)
    with np.errstate(invalid="ignore"):  # infinities
        between: NDArray[np.bool_] = np.abs(raw - np.rint(raw)) > tolerance
    return between
