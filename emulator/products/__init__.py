"""The products the emulator knows, by the vendor's SoC names.

>>> from emulator import products
>>> products.get("950").label
'Ascend950PR_9589 (Ascend 950PR, NpuArch 3510, 64 vector cores, UB 253952 B, fidelity: source)'
>>> products.get("910B3").replace(vector_cores=20).changes
('vector_cores 40 -> 20',)

The numbers stand in the TOML files of this folder, each with its source; `Product.sources` carries them.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Final

from emulator.errors import ProductError, explain
from emulator.products.load import parse_family, parse_unsupported
from emulator.products.model import Product, Source

__all__ = ["ALIASES", "DEFAULT_PRODUCT", "Product", "Source", "get", "names", "unsupported"]

DEFAULT_PRODUCT: Final = "Ascend950PR_9589"
"""The product used where none is named."""

ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "950": "Ascend950PR_9589",
        "950PR": "Ascend950PR_9589",
        "950DT": "Ascend950DT_9581",
        "910": "Ascend910A",
        "A2": "Ascend910B1",
        "A3": "Ascend910_9391",
        "910_93": "Ascend910_9391",
        "910C": "Ascend910_9391",
    }
)
"""Short names beside the SoC names, which also work without their ``Ascend``."""

_FAMILIES: Final = ("atlas_training.toml", "atlas_a2.toml", "atlas_a3.toml", "ascend950.toml")
_UNSUPPORTED: Final = "unsupported.toml"


def get(name: str | Product) -> Product:
    """Return the product of that name; a `Product` is returned as it is.

    Args:
        name: A SoC name (``Ascend910B3``), the same without ``Ascend`` (``910B3``), or one of `ALIASES`, in
            upper or lower case. ``910B`` alone is refused: the SoC ``Ascend910B`` is an old 910 (NpuArch
            1001), while people mean Atlas A2 (``Ascend910B1`` and on) by it.

    Raises:
        ProductError: `name` is of another type, unknown, ambiguous, or a product that cannot run the
            operator.
    """
    if isinstance(name, Product):
        return name
    if not isinstance(name, str):
        raise ProductError(
            explain(
                "product",
                got=name,
                allowed="a name (str) or a Product",
                remedy=f"pass for example {DEFAULT_PRODUCT!r}",
            )
        )
    wanted = name.casefold()
    if wanted == "910b":
        raise ProductError(_ambiguous(name))
    known = _by_spelling()
    if wanted in known:
        return _catalogue()[known[wanted]]
    for soc, reason in _refused().items():
        if wanted in _spellings(soc):
            allowed = f"a product the operator runs on, such as {DEFAULT_PRODUCT} or Ascend910B1"
            raise ProductError(explain("product", got=name, allowed=allowed, remedy=f"not {soc}: {reason}"))
    raise ProductError(_unknown(name))


def names() -> tuple[str, ...]:
    """Return the names of all supported SoCs: Atlas training, A2, A3, then Ascend 950."""
    return tuple(_catalogue())


def unsupported() -> dict[str, str]:
    """Return the SoCs known by name that cannot run the operator, each with the reason and its source."""
    return dict(_refused())


@cache
def _catalogue() -> Mapping[str, Product]:
    products = [p for file in _FAMILIES for p in parse_family(_read(file), file)]
    return MappingProxyType({p.name: p for p in products})


@cache
def _refused() -> Mapping[str, str]:
    return MappingProxyType(parse_unsupported(_read(_UNSUPPORTED), _UNSUPPORTED))


@cache
def _by_spelling() -> Mapping[str, str]:
    """Every accepted spelling, in lower case, to the SoC's name."""
    spelled = {alias.casefold(): soc for alias, soc in ALIASES.items()}
    spelled.update({spelling: soc for soc in _catalogue() for spelling in _spellings(soc)})
    return MappingProxyType(spelled)


def _spellings(soc: str) -> tuple[str, str]:
    return soc.casefold(), soc.removeprefix("Ascend").casefold()


def _read(file: str) -> str:
    return files(__name__).joinpath(file).read_text(encoding="utf-8")


def _ambiguous(name: str) -> str:
    a2 = ", ".join(p.name for p in _catalogue().values() if p.family == "Atlas A2")
    return explain(
        "product",
        got=name,
        allowed="a name of one product only",
        remedy=f"write Ascend910B for the old 910 (NpuArch 1001), or one of {a2} for Atlas A2 (NpuArch 2201)",
    )


def _unknown(name: str) -> str:
    pool = {spelling: soc for soc in _refused() for spelling in _spellings(soc)} | dict(_by_spelling())
    near = difflib.get_close_matches(name.casefold(), pool, n=5, cutoff=0.6)
    close = ", ".join(dict.fromkeys(pool[n] for n in near))
    remedy = f"close matches: {close}; " if close else ""
    return explain(
        "product",
        got=name,
        allowed=f"a SoC name or one of {', '.join(ALIASES)}",
        remedy=remedy + "list all with `aicore products` or emulator.products.names()",
    )
