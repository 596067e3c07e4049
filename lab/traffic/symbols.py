"""The stocks that the lab's exchange trades: names, base prices, popularity.

All of it is a function of the rank alone, so that subscriptions and sessions made with
different seeds speak of the same stocks at the same prices.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from random import Random

_NAMES = """
AAPL MSFT GOOGL NVDA AMZN META TSLA AMD INTC ORCL CSCO QCOM NFLX AVGO ADBE PYPL TXN MU AMAT LRCX
KLAC MRVL ADI PANW CRWD SNPS CDNS FTNT ABNB BKNG MAR SBUX COST PEP KHC MDLZ CMCSA TMUS CHTR EA
WBD GILD AMGN VRTX REGN BIIB MRNA ILMN ISRG DXCM IDXX ALGN HON CSX PCAR ODFL FAST CTAS CPRT PAYX
ADP INTU ADSK WDAY TEAM DDOG ZS MDB OKTA DOCU ZM ROKU LULU ROST DLTR ORLY EBAY JD PDD BIDU NTES
ASML NXPI ON MCHP SWKS QRVO EXC XEL AEP CEG FANG BKR VRSK CSGP TTD GFS LCID RIVN
"""
_WELL_KNOWN = _NAMES.split()

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True)
class Symbol:
    """One stock. ``price`` in units of 0.0001 dollars, on a whole cent; ``locate`` from 1."""

    name: str
    locate: int
    price: int

    @property
    def stock(self) -> bytes:
        """The name as ITCH carries it: eight bytes, blanks on the right."""
        return self.name.encode().ljust(8)


def symbols(count: int) -> list[Symbol]:
    """Returns the first ``count`` stocks, most traded first; base prices are 2 to 2,000 dollars."""
    return [_symbol(rank) for rank in range(count)]


def popularity(count: int, exponent: float = 1.0) -> list[float]:
    """Cumulated Zipf weights of ranks 1 to ``count``: rank ``k`` weighs ``k ** -exponent``."""
    return list(accumulate(rank**-exponent for rank in range(1, count + 1)))


def _symbol(rank: int) -> Symbol:
    name = _WELL_KNOWN[rank] if rank < len(_WELL_KNOWN) else _made_up(rank - len(_WELL_KNOWN))
    dollars = min(max(Random(f"price of {name}").lognormvariate(4.4, 0.9), 2.0), 2000.0)
    return Symbol(name, rank + 1, round(dollars * 100) * 100)


def _made_up(number: int) -> str:
    """Five letters, beginning with Z, where no well-known name is: ``ZAAAA``, ``ZAAAB``, ..."""
    letters = ""
    for _ in range(4):
        number, letter = divmod(number, len(_LETTERS))
        letters = _LETTERS[letter] + letters
    return "Z" + letters
