"""Product files: one TOML per family, read strictly.

A file holds three things::

    [family]            # values all its SoCs share
    [sources.<label>]   # where values come from: kind, text, and the fields meant
    [[soc]]             # one per SoC: name, and the values it has for itself (which win over the family's)

`fields` of a source is a list of field names, or a table from field name to the key in the ini file; without
it the label is the field. In `text`, ``<SoC>`` stands for the SoC's name and ``<key>`` for that ini key. A
`[soc.sources.<label>]` wins over the family's. TOML has no null: ``"unpublished"`` reads as None.

An unknown key, a missing value and a value without a source are errors.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from typing import Any, get_args

from emulator.errors import ProductError, explain
from emulator.products.model import DATA_FIELDS, SOURCED_FIELDS, Product, Source, SourceKind

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]


def parse_family(text: str, where: str) -> tuple[Product, ...]:
    """Return the products of one family file, in its order.

    Args:
        text: The file's content.
        where: The file's name, for error texts.

    Raises:
        ProductError: `text` is not TOML, has a key that means nothing, lacks a value or the source of one,
            gives two sources for one field, or holds a value `Product` refuses.
    """
    data = _toml(text, where)
    _keys(where, data, required={"family", "soc"}, optional={"sources"})
    _keys(f"{where} [family]", data["family"], optional=set(DATA_FIELDS) - {"name"})
    shared = _sources(f"{where} [sources]", data.get("sources", {}))
    socs = _tables(f"{where} [[soc]]", data["soc"])
    products = tuple(_product(where, data["family"], shared, soc) for soc in socs)
    _distinct(where, [p.name for p in products])
    return products


def parse_unsupported(text: str, where: str) -> dict[str, str]:
    """Return SoC name to reason, for products known by name that cannot run the operator.

    Raises:
        ProductError: `text` is not TOML, has a key that means nothing or lacks one, or names a SoC twice.
    """
    data = _toml(text, where)
    _keys(where, data, required={"group"})
    reasons: list[tuple[str, str]] = []
    for group in _tables(f"{where} [[group]]", data["group"]):
        _keys(f"{where} [[group]]", group, required={"names", "reason", "source"})
        reasons += [(name, f"{group['reason']} ({group['source']})") for name in group["names"]]
    _distinct(where, [name for name, _ in reasons])
    return dict(reasons)


def _product(where: str, family: Mapping[str, Any], shared: Mapping[str, Source], soc: Mapping[str, Any]) -> Product:
    name = str(soc.get("name", "?"))
    here = f"{where} [[soc]] {name}"
    _keys(here, soc, required={"name"}, optional={*DATA_FIELDS, "sources"})
    values = {**family, **soc}
    own = _sources(here, values.pop("sources", {}))
    _keys(here, values, required=set(DATA_FIELDS))
    sources = {**shared, **own}
    _keys(f"sources for {here}", sources, required=set(SOURCED_FIELDS))
    values = {k: None if v == "unpublished" else v for k, v in values.items()}
    named = {f: Source(kind=sources[f].kind, text=sources[f].text.replace("<SoC>", name)) for f in SOURCED_FIELDS}
    return Product(**values, sources=named)


def _sources(where: str, tables: Mapping[str, Any]) -> dict[str, Source]:
    out: dict[str, Source] = {}
    for label, table in tables.items():
        here = f"{where} source {label}"
        _keys(here, table, required={"kind", "text"}, optional={"fields"})
        if (kind := table["kind"]) not in get_args(SourceKind):
            allowed = ", ".join(get_args(SourceKind))
            raise ProductError(explain(f"{here} kind", got=kind, allowed=allowed, remedy="correct it"))
        text, fields = table["text"], table.get("fields", [label])
        if not (isinstance(text, str) and text.strip() and isinstance(fields, (list, dict))):
            allowed = "text, and fields as a list of names or a table of ini keys"
            raise ProductError(explain(here, got=table, allowed=allowed, remedy="correct it"))
        _distinct(here, [*out, *fields])
        keys = fields if isinstance(fields, dict) else dict.fromkeys(fields, "")
        _keys(f"{here} fields", keys, optional=SOURCED_FIELDS)
        out |= {f: Source(kind=kind, text=text.replace("<key>", str(key))) for f, key in keys.items()}
    return out


def _toml(text: str, where: str) -> dict[str, Any]:
    try:
        data: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ProductError(explain(where, got=str(error), allowed="a TOML text", remedy="correct the file")) from error
    return data


def _tables(where: str, value: Any) -> list[Mapping[str, Any]]:
    """Refuse `value` unless it is a list of tables with at least one in it."""
    if not (isinstance(value, list) and value and all(isinstance(v, dict) for v in value)):
        raise ProductError(explain(where, got=value, allowed="one table or more", remedy="correct the file"))
    return value


def _keys(where: str, table: Any, *, required: Collection[str] = (), optional: Collection[str] = ()) -> None:
    """Refuse `table` unless it is one, has all `required` keys and none but these and the `optional`."""
    if not isinstance(table, dict):
        raise ProductError(explain(where, got=table, allowed="a table of keys", remedy="correct the file"))
    unknown = sorted(set(table) - set(required) - set(optional))
    if unknown:
        allowed = ", ".join(sorted({*required, *optional}))
        raise ProductError(
            explain(f"{where}: unknown key", got=", ".join(unknown), allowed=allowed, remedy="remove it")
        )
    missing = sorted(set(required) - set(table))
    if missing:
        allowed = f"all of {', '.join(sorted(required))}"
        raise ProductError(
            explain(where, got=f"no {', '.join(missing)}", allowed=allowed, remedy="add what is missing")
        )


def _distinct(where: str, names: list[str]) -> None:
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise ProductError(
            explain(where, got=f"{', '.join(twice)} twice", allowed="each name once", remedy="remove one")
        )
