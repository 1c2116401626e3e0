"""Products: the numbers of the facts sheet, names, what-if machines, and strict product files."""

from __future__ import annotations

import copy
import dataclasses
import doctest
import json
import pickle
from pathlib import Path

import numpy as np
import pytest

from emulator import products
from emulator.errors import EmulatorError, ProductError, explain
from emulator.products.load import parse_family, parse_unsupported
from emulator.products.model import DATA_FIELDS, REPLACEABLE, SOURCED_FIELDS

HBM_32, HBM_64 = 34359738368, 68719476736
HBM_112, HBM_128, HBM_144 = 120259084288, 137438953472, 154618822656

# Typed from the facts sheet, tables 1.1 and 1.2:
# name, arch, AI cores, vector cores, MHz, UB, L2, HBM, ddr of a vector core, ddr of an AI core
TABLE = [
    ("Ascend910A", 1001, 32, 32, 1000, 262144, 33554432, None, 32, 32),
    ("Ascend910ProA", 1001, 32, 32, 1100, 262144, 33554432, None, 32, 32),
    ("Ascend910ProB", 1001, 30, 30, 1150, 262144, 33554432, None, 32, 32),
    ("Ascend910PremiumA", 1001, 32, 32, 1220, 262144, 33554432, None, 32, 32),
    ("Ascend910B", 1001, 30, 30, 900, 262144, 33554432, None, 32, 32),
    ("Ascend910B1", 2201, 24, 48, 1850, 196608, 201326592, HBM_64, 32, 32),
    ("Ascend910B2", 2201, 24, 48, 1800, 196608, 201326592, HBM_64, 32, 32),
    ("Ascend910B2C", 2201, 24, 48, 1800, 196608, 201326592, None, 32, 32),
    ("Ascend910B3", 2201, 20, 40, 1800, 196608, 201326592, HBM_64, 32, 32),
    ("Ascend910B4", 2201, 20, 40, 1500, 196608, 100663296, HBM_32, 32, 32),
    ("Ascend910B4-1", 2201, 20, 40, 1500, 196608, 176160768, HBM_32, 32, 32),
    ("Ascend910_9391", 2201, 24, 48, 1850, 196608, 201326592, HBM_64, 32, 32),
    ("Ascend910_9392", 2201, 24, 48, 1850, 196608, 201326592, HBM_64, 32, 32),
    ("Ascend910_9381", 2201, 24, 48, 1800, 196608, 201326592, HBM_64, 32, 32),
    ("Ascend910_9382", 2201, 24, 48, 1800, 196608, 201326592, HBM_64, 32, 32),
    ("Ascend910_9372", 2201, 20, 40, 1800, 196608, 201326592, HBM_64, 32, 32),
    ("Ascend910_9362", 2201, 20, 40, 1500, 196608, 176160768, HBM_64, 32, 32),
    ("Ascend910_9363", 2201, 20, 40, 1500, 196608, 176160768, HBM_32, 32, 32),
    ("Ascend950PR_9599", 3510, 36, 72, 1800, 253952, 134217728, HBM_128, 16, 31),
    ("Ascend950PR_9589", 3510, 32, 64, 1650, 253952, 134217728, HBM_128, 16, 31),
    ("Ascend950PR_9579", 3510, 28, 56, 1650, 253952, 134217728, HBM_128, 16, 31),
    ("Ascend950PR_958b", 3510, 32, 64, 1650, 253952, 117440512, HBM_112, 14, 27),
    ("Ascend950PR_957b", 3510, 28, 56, 1650, 253952, 117440512, HBM_112, 14, 27),
    ("Ascend950DT_9591", 3510, 36, 72, 1800, 253952, 134217728, HBM_144, 40, 80),
    ("Ascend950DT_95A1", 3510, 36, 72, 1800, 253952, 134217728, HBM_144, 40, 80),
    ("Ascend950DT_9581", 3510, 32, 64, 1650, 253952, 134217728, HBM_144, 40, 80),
    ("Ascend950DT_9571", 3510, 28, 56, 1650, 253952, 134217728, HBM_144, 40, 80),
]

# What follows from the architecture: l2 read/write, vector UB->L2/DDR, AI-core UB->L2/DDR, banks (count,
# bytes, groups), overflow, workspace, event IDs, hard SyncAll, fidelity, empty tensors
BY_ARCH = {
    1001: (110, 86, 64, 64, 64, 64, 64, 4096, 16, "saturation", 2097152, 4, False, "model", "untouched"),
    2201: (110, 86, 64, 64, 64, 64, 48, 4096, 16, "infnan", 16777216, 8, True, "model", "untouched"),
    3510: (100, 100, 42, 40, 128, 128, 16, 16384, 8, "infnan", 16777216, 8, True, "source", "zeros"),
}


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row[0])
def test_numbers_of_each_soc(row):
    p = products.get(row[0])
    assert row == (
        p.name,
        p.npu_arch,
        p.ai_cores,
        p.vector_cores,
        p.clock_mhz,
        p.ub_bytes,
        p.l2_bytes,
        p.hbm_bytes,
        p.ddr_bytes_per_cycle,
        p.ai_core_ddr_bytes_per_cycle,
    )
    assert BY_ARCH[p.npu_arch] == (
        p.l2_read_bytes_per_cycle,
        p.l2_write_bytes_per_cycle,
        p.ub_to_l2_bytes_per_cycle,
        p.ub_to_ddr_bytes_per_cycle,
        p.ai_core_ub_to_l2_bytes_per_cycle,
        p.ai_core_ub_to_ddr_bytes_per_cycle,
        p.ub_bank_count,
        p.ub_bank_bytes,
        p.ub_bank_groups,
        p.overflow_mode,
        p.system_workspace_bytes,
        p.event_ids,
        p.hard_sync_all,
        p.fidelity,
        p.empty_tensor,
    )
    bf16 = () if p.npu_arch == 1001 else ("bfloat16",)
    assert p.dtypes == ("float32", "float16", *bf16)


def test_names_are_the_table_and_families_are_told_apart():
    assert products.names() == tuple(row[0] for row in TABLE)
    families = {p.family for p in map(products.get, products.names())}
    assert families == {"Atlas training", "Atlas A2", "Atlas A3", "Ascend 950PR", "Ascend 950DT"}
    for name in products.names():
        family = products.get(name).family
        assert ("950" in family) == ("950" in name)
        assert (family == "Atlas A3") == ("910_93" in name)


@pytest.mark.parametrize("name", [row[0] for row in TABLE])
def test_every_value_has_a_source_without_open_placeholders(name):
    p = products.get(name)
    assert set(p.sources) == set(SOURCED_FIELDS)
    for source in p.sources.values():
        assert source.kind in ("published", "measured", "assumed")
        assert source.text.strip() and "<" not in source.text
    folder = "cann-dev" if p.npu_arch == 3510 else "cann"
    key = "ai_core_cnt" if p.npu_arch == 1001 else "vector_core_cnt"
    assert p.sources["vector_cores"].text.startswith(
        f"hicann/runtime@681ef761 src/platform/platform_config/{folder}/{name}.ini {key}"
    )


def test_what_nobody_published_is_marked_as_assumed():
    def assumed(name):
        return {f for f, s in products.get(name).sources.items() if s.kind == "assumed"}

    assert assumed("Ascend910A") == {"overflow_mode"}
    assert (
        assumed("Ascend910B1")
        == assumed("Ascend910_9391")
        == {
            "ddr_bytes_per_cycle",
            "l2_read_bytes_per_cycle",
            "l2_write_bytes_per_cycle",
            "ub_to_l2_bytes_per_cycle",
            "ub_to_ddr_bytes_per_cycle",
        }
    )
    assert assumed("Ascend950PR_9589") == set()


# --- names -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("950", "Ascend950PR_9589"),
        ("950PR", "Ascend950PR_9589"),
        ("950dt", "Ascend950DT_9581"),
        ("910", "Ascend910A"),
        ("910A", "Ascend910A"),
        ("A2", "Ascend910B1"),
        ("a3", "Ascend910_9391"),
        ("910_93", "Ascend910_9391"),
        ("910C", "Ascend910_9391"),
        ("910B3", "Ascend910B3"),
        ("910b4-1", "Ascend910B4-1"),
        ("910_9391", "Ascend910_9391"),
        ("950PR_9579", "Ascend950PR_9579"),
        ("ASCEND950PR_958B", "Ascend950PR_958b"),
        ("Ascend910B", "Ascend910B"),
        ("ascend910b", "Ascend910B"),
        (products.DEFAULT_PRODUCT, "Ascend950PR_9589"),
    ],
)
def test_spellings(spelling, name):
    assert products.get(spelling).name == name


def test_get_is_cached_and_passes_products_through():
    p = products.get("950")
    assert products.get("Ascend950PR_9589") is p
    changed = p.replace(vector_cores=3)
    assert products.get(changed) is changed


@pytest.mark.parametrize("name", ["910B", "910b"])
def test_910b_alone_is_ambiguous(name):
    with pytest.raises(ProductError) as error:
        products.get(name)
    text = str(error.value)
    assert f"got {name!r}" in text
    assert "write Ascend910B for the old 910 (NpuArch 1001)" in text
    assert "one of Ascend910B1, Ascend910B2, Ascend910B2C, Ascend910B3, Ascend910B4, Ascend910B4-1" in text


@pytest.mark.parametrize(
    ("name", "close"),
    [("950PR_9588", "Ascend950PR_9589"), ("Ascend910B5", "Ascend910B1"), ("310P", "Ascend310P1")],
)
def test_unknown_name_gets_close_matches(name, close):
    with pytest.raises(ProductError, match="close matches") as error:
        products.get(name)
    text = str(error.value)
    assert f"got {name!r}" in text and close in text
    assert text.endswith("list all with `aicore products` or emulator.products.names()")


@pytest.mark.parametrize("name", ["", "Ascend950PR_9589 ", "qwertz"])
def test_unknown_name_far_from_all(name):
    with pytest.raises(ProductError, match=r"allowed: a SoC name or one of 950, 950PR"):
        products.get(name)


@pytest.mark.parametrize("name", sorted(products.unsupported()))
def test_unsupported_products_are_refused_with_the_reason(name):
    where = "Atlas inference series (NpuArch 2002)" if "310P" in name else "Atlas 200I/500 A2 (NpuArch 3002)"
    for spelling in (name, name.removeprefix("Ascend"), name.lower()):
        with pytest.raises(ProductError) as error:
            products.get(spelling)
        assert f"not {name}: aclnnBatchNormReduceBackward does not support" in str(error.value)
        assert where in str(error.value)
        assert "docs/aclnnBatchNormReduceBackward.md" in str(error.value)


def test_unsupported_names():
    found = products.unsupported()
    assert list(found) == [
        *(f"Ascend310P{n}" for n in (1, 3, 5, 7)),
        *(f"Ascend310B{n}" for n in (1, 2, 3, 4)),
    ]
    found.clear()
    assert len(products.unsupported()) == 8


@pytest.mark.parametrize("name", [950, None, b"950", ["950"]])
def test_wrong_type(name):
    with pytest.raises(ProductError, match="allowed: a name \\(str\\) or a Product"):
        products.get(name)


def test_errors_are_value_errors_of_one_line():
    assert issubclass(ProductError, EmulatorError) and issubclass(EmulatorError, ValueError)
    text = explain("x", got="a\nb", allowed="one\n  line", remedy="do")
    assert text == r"x: got 'a\nb'; allowed: one line; do"
    assert len(explain("x", got="y" * 10_000, allowed="less", remedy="cut it")) < 300


# --- what a product is -----------------------------------------------------------------


def test_products_are_frozen_hashable_and_survive_pickle_and_copy():
    p = products.get("950")
    with pytest.raises(dataclasses.FrozenInstanceError):
        p.vector_cores = 1
    with pytest.raises(TypeError):
        p.sources["vector_cores"] = None
    for twin in (pickle.loads(pickle.dumps(p)), copy.deepcopy(p)):
        assert twin == p and hash(twin) == hash(p) and dict(twin.sources) == dict(p.sources)
    assert len({p, products.get("910A"), p.replace(vector_cores=1)}) == 3


def test_label():
    p = products.get("950")
    assert p.label == ("Ascend950PR_9589 (Ascend 950PR, NpuArch 3510, 64 vector cores, UB 253952 B, fidelity: source)")
    assert p.replace(vector_cores=40, hbm_bytes=None, dtypes=["float32"]).label == (
        "Ascend950PR_9589 (Ascend 950PR, NpuArch 3510, 40 vector cores, UB 253952 B, fidelity: source, "
        "what-if: vector_cores 64 -> 40; hbm_bytes 137438953472 -> None; "
        "dtypes float32/float16/bfloat16 -> float32)"
    )


def test_as_dict_is_json():
    p = products.get("910A").replace(vector_cores=np.int64(7), clock_mhz=np.float32(500))
    found = json.loads(json.dumps(p.as_dict()))
    assert set(found) == {f.name for f in dataclasses.fields(p)} | {"label"}
    assert found["vector_cores"] == 7 and found["clock_mhz"] == 500 and found["hbm_bytes"] is None
    assert found["label"] == p.label
    assert found["sources"]["vector_cores"] == {"kind": "assumed", "text": "what-if"}


def test_docstring_examples_run():
    assert doctest.testmod(products).failed == 0


def test_fidelity_notes_say_what_stands_in():
    for p in map(products.get, products.names()):
        assert ("closed kernel" in p.fidelity_note) == (p.fidelity == "model")


# --- what-if machines -----------------------------------------------------------------


def test_replace_logs_changes_and_marks_their_sources():
    real = products.get("950")
    first = real.replace(vector_cores=40, ub_bytes=131072)
    assert (first.vector_cores, first.ub_bytes) == (40, 131072)
    assert first.changes == ("vector_cores 64 -> 40", "ub_bytes 253952 -> 131072")
    second = first.replace(vector_cores=1)
    assert second.changes == (*first.changes, "vector_cores 40 -> 1")
    changed = {f for f in SOURCED_FIELDS if second.sources[f] != real.sources[f]}
    assert changed == {"vector_cores", "ub_bytes"}
    assert second.sources["ub_bytes"] == products.Source(kind="assumed", text="what-if")
    assert real.changes == () and real.vector_cores == 64
    assert second.fidelity == real.fidelity and second.name == real.name


def test_replace_by_the_same_value_is_no_change():
    p = products.get("950")
    same = p.replace(vector_cores=64, clock_mhz=1650.0)
    assert same == p and same.changes == () and dict(same.sources) == dict(p.sources)
    assert p.replace() == p


@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        ("vector_cores", [1, 65535, np.int32(5)], [0, -1, 65536, 2.0, "4", True, None]),
        ("ai_cores", [1], [0]),
        ("ub_bytes", [32, 16 * 2**20], [0, -32, 31, 33, 16 * 2**20 + 32, 64.0]),
        ("clock_mhz", [1, 0.5], [0, -1, float("nan"), float("inf"), "1", True]),
        ("l2_bytes", [1], [0]),
        ("hbm_bytes", [None, 1], [0, "unpublished"]),
        ("ddr_bytes_per_cycle", [0.25], [0]),
        ("ai_core_ddr_bytes_per_cycle", [0.25], [0]),
        ("ub_bank_count", [32], [12, 0]),
        ("ub_bank_bytes", [32], [48, 0]),
        (
            "dtypes",
            [("float16",), ["float32", "bfloat16"]],
            [(), ("float64",), ("float16",) * 2, "float32", 3],
        ),
        ("overflow_mode", ["saturation"], ["ieee", None]),
        ("system_workspace_bytes", [0], [-1]),
        ("event_ids", [1, 8], [0, 9]),
        ("hard_sync_all", [False], [0, 1, "no"]),
        ("empty_tensor", ["untouched"], ["nan"]),
    ],
)
def test_replace_checks_values(field, good, bad):
    p = products.get("950")
    for value in good:
        expected = tuple(value) if isinstance(value, list) else value
        assert getattr(p.replace(**{field: value}), field) == expected
    for value in bad:
        with pytest.raises(ProductError) as error:
            p.replace(**{field: value})
        text = str(error.value)
        assert text.startswith(f"Ascend950PR_9589.{field}: got {value!r}; allowed: ") and "\n" not in text


def test_replace_error_texts():
    p = products.get("950")
    with pytest.raises(ProductError) as error:
        p.replace(ub_bytes=100)
    assert str(error.value) == (
        "Ascend950PR_9589.ub_bytes: got 100; allowed: an integer from 32 to 16777216, a multiple of 32; "
        "pass such a value"
    )
    with pytest.raises(ProductError, match=r"got 'vectr_cores'; allowed: .*did you mean vector_cores"):
        p.replace(vectr_cores=40)


@pytest.mark.parametrize(
    "field",
    ["name", "family", "series", "npu_arch", "fidelity", "fidelity_note", "changes", "sources", "label", "q"],
)
def test_replace_refuses_identity_and_unknown_fields(field):
    assert field not in REPLACEABLE
    with pytest.raises(ProductError, match=rf"replace: got '{field}'; allowed: vector_cores, "):
        products.get("950").replace(**{field: "x"})


# --- product files -----------------------------------------------------------------

FILES = Path(products.__file__).parent
A2 = (FILES / "atlas_a2.toml").read_text(encoding="utf-8")


def test_every_file_of_the_folder_is_read():
    assert {f.name for f in FILES.glob("*.toml") if not f.name.startswith("timing_")} == {
        "atlas_training.toml",
        "atlas_a2.toml",
        "atlas_a3.toml",
        "ascend950.toml",
        "unsupported.toml",
    }


def edit(text, old, new, count=1):
    assert old in text
    return text.replace(old, new, count)


def test_a_soc_overrides_its_family():
    text = edit(A2, "vector_cores = 48\n", "vector_cores = 48\nub_bytes = 64\n")
    text = edit(
        text,
        '\n[[soc]]\nname = "Ascend910B2"',
        ('\n[soc.sources.ub_bytes]\nkind = "measured"\ntext = "bench of <SoC>"\n\n[[soc]]\nname = "Ascend910B2"'),
    )
    b1, b2, *_ = parse_family(text, "a2")
    assert (b1.ub_bytes, b1.sources["ub_bytes"]) == (
        64,
        products.Source(kind="measured", text="bench of Ascend910B1"),
    )
    assert b2 == products.get("910B2")


@pytest.mark.parametrize("field", [f for f in DATA_FIELDS if f"\n{f} =" in A2.split("[sources")[0]])
def test_a_missing_family_value_raises(field):
    head, tail = A2.split("\n[sources", 1)
    head = "\n".join(line for line in head.splitlines() if not line.startswith(f"{field} ="))
    with pytest.raises(ProductError, match=rf"Ascend910B1: got 'no {field}'"):
        parse_family(f"{head}\n[sources{tail}", "a2")


@pytest.mark.parametrize("field", SOURCED_FIELDS)
def test_a_value_without_a_source_raises(field):
    lines = [line for line in A2.splitlines() if not line.startswith(f"[sources.{field}]")]
    if len(lines) == len(A2.splitlines()):  # named inside a group of fields
        head, tail = A2.split("\n[sources", 1)
        text = head + "\n[sources" + edit_group(tail, field)
    else:
        block = A2[A2.index(f"[sources.{field}]") :].split("\n\n", 1)[0]
        text = edit(A2, block, "")
    with pytest.raises(ProductError, match=rf"sources for a2 \[\[soc\]\] Ascend910B1: got 'no {field}'"):
        parse_family(text, "a2")


def edit_group(text, field):
    kept = [line for line in text.splitlines() if not line.startswith(f"{field} = ")]
    if len(kept) < len(text.splitlines()):
        body, socs = text.split("\n[[soc]]", 1)
        body = "\n".join(line for line in body.splitlines() if not line.startswith(f"{field} = "))
        return f"{body}\n\n[[soc]]{socs}"
    return edit(text, f'"{field}"', "").replace("[, ", "[").replace(", ,", ",").replace(", ]", "]")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[family]", "[famly]", r"a2: unknown key: got 'famly'"),
        ("[family]", "[family]\nub_size = 3", r"a2 \[family\]: unknown key: got 'ub_size'"),
        ("[family]", '[family]\nname = "x"', r"a2 \[family\]: unknown key: got 'name'"),
        ("vector_cores = 48", "vector_cores = 48\nl3_bytes = 1", r"910B1: unknown key: got 'l3_bytes'"),
        ("vector_cores = 48\n", "", r"Ascend910B1: got 'no vector_cores'"),
        ('name = "Ascend910B1"\n', "", r"got 'no name'"),
        ('name = "Ascend910B2"', 'name = "Ascend910B1"', r"got 'Ascend910B1 twice'"),
        ("vector_cores = 48", "vector_cores = 0", r"Ascend910B1.vector_cores: got 0"),
        ("npu_arch = 2201", "npu_arch = 2002", r"npu_arch: got 2002; allowed: one of 1001, 2201, 3510"),
        (
            'kind = "assumed"',
            'kind = "guessed"',
            r"kind: got 'guessed'; allowed: published, measured, assumed",
        ),
        ("[sources.event_ids]", "[sources.eventids]", r"unknown key: got 'eventids'"),
        ("[sources.event_ids]\n", "[sources.event_ids]\npage = 3\n", r"unknown key: got 'page'"),
        ("[sources.event_ids]\n", '[sources.event_ids]\nfields = ["dtypes"]\n', r"got 'dtypes twice'"),
        ("[sources.event_ids]\n", "[sources.event_ids]\nfields = 3\n", r"source event_ids: got "),
        ('kind = "assumed"\n', "", r"got 'no kind'"),
        ("[family]", "[family", r"a2: got .*allowed: a TOML text"),
    ],
)
def test_a_faulty_family_file_raises(old, new, message):
    with pytest.raises(ProductError, match=message):
        parse_family(edit(A2, old, new), "a2")


@pytest.mark.parametrize("text", ["", "soc = 3\n[family]\n", "soc = []\n[family]\n", "[soc]\n[family]\n"])
def test_a_family_file_needs_socs(text):
    with pytest.raises(ProductError, match="a2"):
        parse_family(text, "a2")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "got 'no group'"),
        ("group = 1", "allowed: one table or more"),
        ('[[group]]\nnames = ["A"]\nreason = "r"', "got 'no source'"),
        ('[[group]]\nnames = ["A", "A"]\nreason = "r"\nsource = "s"', "got 'A twice'"),
        ('[[group]]\nnames = ["A"]\nreason = "r"\nsource = "s"\nnote = 1', "unknown key: got 'note'"),
    ],
)
def test_a_faulty_unsupported_file_raises(text, message):
    with pytest.raises(ProductError, match=message):
        parse_unsupported(text, "u")
