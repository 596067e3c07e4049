"""What compiled loops are handed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def read_only(array: NDArray[Any], dtype: type[np.generic]) -> NDArray[Any]:
    """A read-only contiguous view, a copy only where the type differs.

    Arrow's buffers are read-only, and one type of input is one compilation.
    """
    view = np.ascontiguousarray(array, dtype).view()
    view.flags.writeable = False
    return view
