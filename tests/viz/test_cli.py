"""The command: what it prints, the JSON it prints, and every way it refuses."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ops

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = ("run", "products", "plan", "tree")


def python(code, **options):
    return subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


# ---- help and start


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(aicore, command):
    result = aicore(command, "--help")
    assert result.status == 0
    assert f"  aicore {command}" in result.out.split("Examples:")[1]


def test_without_arguments_the_commands_are_listed(aicore):
    result = aicore()
    assert result.status == 0
    assert all(f"  {command} " in result.out for command in COMMANDS)


def test_version(aicore):
    assert aicore("--version").out.startswith("aicore ")


@pytest.mark.parametrize(
    ("arguments", "unwanted"),
    [(["--help"], ("numba", "matplotlib", "rich", "ops")), (["products"], ("matplotlib", "ops"))],
)
def test_start_imports_only_what_it_needs(arguments, unwanted):
    code = f"import sys; from viz.cli import main; main({arguments}); sys.stderr.write(' '.join(sys.modules))"
    with python(code) as process:
        _, modules = process.communicate(timeout=60)
    assert process.returncode == 0
    assert not set(unwanted) & set(modules.split())


# ---- run


def test_run_prints_the_example(aicore, example):
    result = aicore("run", example)
    assert (result.status, result.err) == (0, "")
    lines = [line.split() for line in result.out.splitlines()]
    for row in (
        ["sumDy", "0", "7.0", "7.0", "0"],
        ["1", "8.0", "8.0", "0"],
        ["sumDyXmu", "0", "21.0", "21.0", "0"],
        ["gradWeight", "0", "21.0", "21.0", "0"],
        ["1", "30.0", "30.0", "0"],
        ["gradBias", "0", "7.0", "7.0", "0"],
    ):
        assert row in lines
    for text in (
        "fidelity: source",
        "pattern ARA",
        "1 of 64 used",
        "252,928 of 253,952 B",
        "SyncBatchNormBackwardReduce",
    ):
        assert text in result.out
    assert "|mean|/sigma   1 to 1 (largest in channel 0)" in result.out


@pytest.mark.parametrize("engine", ["instruction", "fast"])
def test_run_json_agrees_with_ops_and_with_the_report(aicore, engine):
    operands = ops.bundled("digits_mlp_bn_fp32")
    path = Path(ops.__file__).parent / "data" / "digits_mlp_bn_fp32.npz"
    machine = ("--set", "vector_cores=6", "--engine", engine, "--seed", "3")
    record = aicore("run", path, *machine, "--json").record
    printed = aicore("run", path, *machine, "--cores", "all", "--channels", "64").out
    product = ops.plan_reduce_sum((2, 2), product="950").product.replace(vector_cores=6)
    grads = ops.batch_norm_reduce_backward(
        operands.grad_out, operands.input, operands.mean, operands.invstd, product=product
    )
    plan = grads.run.plan
    assert plan is not None and plan.group_r > 1
    for name in ("sum_dy", "sum_dy_xmu", "grad_weight", "grad_bias"):
        values = getattr(grads, name)
        output = record["outputs"][name]
        assert output["values"] == values.tolist()
        assert [float.fromhex(text) for text in output["values_hex"]] == values.tolist()
        exact = np.array([float.fromhex(text) for text in output["exact"]])
        np.testing.assert_array_equal(exact.astype(np.float32).tolist(), output["rounded"])
        assert all(str(np.float32(v)) in printed for v in values)
        assert len(output["error_ulp"]) == 64
    work = record["plan"]["work"]
    assert [w["elements"] for w in work] == [s.elements for s in plan.shares()]
    for share, core in zip(plan.shares(), work, strict=True):
        rows = grads.run.partials["sum_dy_x"][share.core % plan.group_r]
        assert core["partials"]["sum_dy_x"] == rows[slice(*share.channels)].tolist()
        assert str(rows[share.channels[0]]) in printed
        assert bool(core["instructions"]) == (engine == "instruction")
    assert len(record["launches"]) == (4 if engine == "instruction" else 0)
    assert record["plan"]["tiling_data"] == plan.tiling_data()
    assert record["product"]["changes"] == ["vector_cores 64 -> 6"]
    assert "what-if: vector_cores 64 -> 6" in printed.replace("\n               ", " ")
    assert record["schedule"] == "seed 3"
    assert record["seconds"]["command"] > 0


def test_run_without_a_file_reads_the_bundled_dump(aicore):
    result = aicore("run", "--engine", "fast", "--product", "A2", "--out-dtype", "float32")
    assert "digits_cnn_bn_fp16 (bundled): [64, 16, 8, 8] float16" in result.out
    assert "fidelity: model" in result.out and "closed kernel" in result.out
    assert "outputs float32" in result.out
    assert "Instructions are counted with --engine instruction." in result.out


def test_masked_outputs_are_said_to_be_masked(aicore, example):
    arguments = ("run", example, "--engine", "fast", "--no-input-g", "--no-bias-g")
    outputs = aicore(*arguments, "--json").record["outputs"]
    assert [name for name, output in outputs.items() if output is None] == ["sum_dy", "sum_dy_xmu", "grad_bias"]
    assert aicore(*arguments).out.count("masked off") == 3


def test_nan_and_infinity_are_texts_in_json(aicore, tmp_path):
    x = np.array([[np.nan, 1, 65504], [1, np.inf, 65504]], np.float16)
    np.savez(tmp_path / "x.npz", grad_out=np.ones_like(x), input=x, mean=np.zeros(3, "f4"), invstd=np.ones(3, "f4"))
    record = aicore("run", tmp_path / "x.npz", "--engine", "fast", "--json").record
    assert record["outputs"]["grad_weight"]["values"] == ["nan", "inf", "inf"]
    assert record["outputs"]["grad_weight"]["exact"][:2] == ["nan", "inf"]
    assert float.fromhex(record["outputs"]["grad_weight"]["exact"][2]) == 131008


def test_empty_operands_have_no_plan(aicore, tmp_path):
    x, ones = np.zeros((0, 2), np.float32), np.ones(2, np.float32)
    np.savez(tmp_path / "x.npz", grad_out=x, input=x, mean=ones, invstd=ones)
    assert aicore("run", tmp_path / "x.npz", "--json").record["plan"] is None
    assert "empty input" in aicore("run", tmp_path / "x.npz").out
    refused = aicore("run", tmp_path / "x.npz", "--figure", tmp_path / "x.png")
    assert refused.status == 2 and "operands without elements" in refused.err
    assert not (tmp_path / "x.png").exists()


def test_many_operands_on_the_instruction_engine_are_warned_of(aicore, example, monkeypatch):
    monkeypatch.setattr("viz.cli.SLOW_ELEMENTS", 7)
    assert aicore("run", example).err == "aicore: 8 elements on the instruction engine; --engine fast is quicker\n"
    assert aicore("run", example, "--engine", "fast").err == ""


# ---- products, plan, tree


def test_products_lists_all_and_those_refused(aicore):
    from emulator import products

    result = aicore("products")
    record = aicore("products", "--json").record
    assert [p["name"] for p in record["products"]] == list(products.names())
    assert {u["name"] for u in record["unsupported"]} == set(products.unsupported())
    assert all(name in result.out for name in (*products.names(), *products.unsupported()))


def test_a_product_is_shown_with_its_sources(aicore):
    from emulator import products

    chip = products.get("910B3")
    assert aicore("products", "910B3", "--json").record == chip.as_dict()
    printed = aicore("products", "910B3").out
    for name, source in chip.sources.items():
        assert name in printed and source.kind in printed
    assert "2201" in printed


def test_both_spellings_of_a_shape_give_one_plan(aicore):
    first = aicore("plan", "32,64,56,56", "--json").record
    for spelling in ("32x64x56x56", " 32 x 64 X 56x56 ", "(32, 64, 56, 56)", "[32,64,56,56]"):
        assert aicore("plan", spelling, "--json").record == first
    assert first["canonical_shape"] == [1, 32, 64, 3136]
    assert first["tiling_data"] == ops.plan_reduce_sum((32, 64, 56, 56)).tiling_data()


def test_plan_prints_tiling_data_and_some_cores(aicore):
    printed = aicore("plan", "4096x256").out
    plan = ops.plan_reduce_sum((4096, 256))
    assert "... 54 more (--cores all)" in printed
    assert f"yes: {plan.group_r} cores share each A tile" in printed
    for name in plan.tiling_data():
        assert f"{name} " in printed
    assert "more (--cores all)" not in aicore("plan", "4096x256", "--cores", "all").out


def test_tree_prints_the_expression_of_a_small_one(aicore):
    assert "(x[0,0] + x[2,0]) + (x[1,0] + x[3,0])\n" in aicore("tree", "4,2").out
    record = aicore("tree", "4x2", "--channel", "1", "--json").record
    assert record["text"] == "(x[0,1] + x[2,1]) + (x[1,1] + x[3,1])"
    assert (record["leaves"], record["height"], record["leaves_per_level"]) == (4, 2, {"2": 4})


def test_tree_prints_statistics_of_a_large_one(aicore):
    record = aicore("tree", "64,3,9,9", "--json").record
    assert record["text"] is None
    assert sum(record["leaves_per_level"].values()) == record["leaves"] == 64 * 81
    printed = aicore("tree", "64,3,9,9").out
    assert f"{record['pads']:,} pads of +0" in printed
    for stage in record["stages"]:
        assert f"{stage['name']} " in printed and f"{stage['additions']:,}" in printed


# ---- figures


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
@pytest.mark.parametrize("command", [("plan", "4,2"), ("tree", "4,2"), ("run", "--engine", "fast")])
def test_figures_are_written(aicore, tmp_path, command, suffix):
    path = tmp_path / f"figure.{suffix}"
    assert aicore(*command, "--figure", path).status == 0
    start = {"png": b"\x89PNG\r\n", "svg": b"<?xml", "pdf": b"%PDF"}[suffix]
    assert path.read_bytes().startswith(start)
    assert list(tmp_path.iterdir()) == [path]


def test_a_figure_that_fails_leaves_nothing(tmp_path):
    from viz.output import save_figure

    class Failing:
        def savefig(self, stream, **_):
            stream.write(b"half")
            raise OSError(28, "No space left on device")

    path = tmp_path / "figure.png"
    path.write_bytes(b"the one before")
    with pytest.raises(OSError, match="No space"):
        save_figure(Failing(), path)
    assert [p.read_bytes() for p in tmp_path.iterdir()] == [b"the one before"]


# ---- refusals


SHAPE = "SHAPE: got {!r}; allowed: positive whole numbers as 32,64,56,56 or 32x64x56x56"
REFUSED = [
    *(
        (f"plan|{text}", SHAPE.format(text))
        for text in ("abc", "nan,4", "", "4,-2", "3.5,2", "4,,2", "4x", "1e3,2", "4;2")
    ),
    ("plan|0,4", "SHAPE: got [0, 4]; allowed: positive whole numbers"),
    ("plan|4", "SHAPE: got rank 1 [4]; allowed: rank 2 to 8"),
    ("plan|1,2,3,4,5,6,7,8,9", "SHAPE: got rank 9"),
    ("plan|" + "9" * 19 + ",2", "SHAPE: got"),
    ("plan", "Missing argument 'SHAPE'; see aicore plan --help"),
    ("plan|4,2|--set|foo=1", "replace: got 'foo'; allowed: vector_cores, "),
    ("plan|4,2|--set|vector_cores=nan", "vector_cores: got nan; allowed: an integer from 1 to 65535"),
    ("plan|4,2|--set|vector_cores=many", "vector_cores: got 'many'; allowed: an integer"),
    ("plan|4,2|--set|clock_mhz=nan", "clock_mhz: got nan; allowed: a finite number"),
    ("plan|4,2|--set|ub_bytes", "--set: got 'ub_bytes'; allowed: FIELD=VALUE"),
    ("plan|4,2|--set|ub_bytes=", "--set: got 'ub_bytes='; allowed: FIELD=VALUE"),
    ("plan|4,2|--set|ub_bytes=64|--set|ub_bytes=96", "--set ub_bytes: got 'two values'"),
    ("plan|4,2|--set|ub_bytes=1024", "1024 B of UB, too small for one tile"),
    ("plan|4,2|--product|910B", "product: got '910B'; allowed: a name of one product only"),
    ("plan|4,2|--product|310P3", "not Ascend310P3: aclnnBatchNormReduceBackward does not support"),
    ("plan|4,2|--product|Ascend99", "product: got 'Ascend99'; allowed: a SoC name"),
    ("plan|4,2|--cores|0", "--cores: got '0'; allowed: a whole number from 1 on, or all"),
    ("plan|4,2|--cores|few", "--cores: got 'few'"),
    ("plan|4,2|--figure|a.jpg", "--figure a.jpg: got '.jpg'; allowed: .png, .svg, .pdf"),
    ("plan|4,2|--figure|no/such/a.png", "got 'a folder that does not exist'"),
    ("tree|4,2|--channel|2", "channel: got 2; allowed: 0 to 1"),
    ("tree|4,2|--channel|-1", "channel: got -1; allowed: 0 to 1"),
    ("tree|4,2|--channel|x", "Invalid value for '--channel'"),
    ("tree|1000000000,2", "SHAPE 1000000000,2: got 1000000000; allowed: at most 67108864 elements"),
    ("products|nope", "product: got 'nope'"),
    ("draw", "No such command 'draw'"),
    ("run|--bogus", "No such option: --bogus"),
    ("run|--channels|0", "Invalid value for '--channels'"),
    ("run|--seed|-1", "Invalid value for '--seed'"),
    ("run|--engine|turbo", "engine: got 'turbo'; allowed: "),
    ("run|--out-dtype|float64", "out_dtype: got dtype float64; allowed on Ascend950PR_9589"),
    (
        "run|--product|910A|--out-dtype|bfloat16",
        "out_dtype: got dtype bfloat16; allowed on Ascend910A: float32, float16",
    ),
    ("run|none.npz", "got 'no such file or folder'"),
    ("run|broken.npz", "a file that is not .npz"),
    ("run|lacking.npz", "missing input, mean, invstd"),
    ("run|short_mean.npz", "mean: got shape [3]; allowed: [2]"),
]


@pytest.mark.parametrize(("line", "text"), REFUSED, ids=lambda v: v[:40])
def test_bad_input_is_one_line_and_status_2(aicore, tmp_path, monkeypatch, line, text):
    monkeypatch.chdir(tmp_path)
    x = np.zeros((4, 2), np.float32)
    Path("broken.npz").write_bytes(b"not at all")
    np.savez("lacking.npz", grad_out=x)
    np.savez("short_mean.npz", grad_out=x, input=x, mean=np.zeros(3, "f4"), invstd=np.zeros(2, "f4"))
    before = sorted(tmp_path.iterdir())
    result = aicore(*line.split("|"))
    assert result.status == 2
    assert result.out == ""
    assert result.err.startswith("aicore: ") and result.err.count("\n") == 1 and result.err.endswith("\n")
    assert text in result.err
    assert sorted(tmp_path.iterdir()) == before


def test_a_figure_is_checked_before_the_work(aicore, tmp_path, monkeypatch):
    def never(*_, **__):
        raise AssertionError("worked first")

    monkeypatch.setattr(ops, "batch_norm_reduce_backward", never)
    result = aicore("run", "--figure", tmp_path / "no" / "run.png")
    assert result.status == 2 and "make the folder first" in result.err


def test_a_figure_cannot_be_a_folder(aicore, tmp_path):
    (tmp_path / "a.png").mkdir()
    assert "got 'a folder'; allowed: a file" in aicore("plan", "4,2", "--figure", tmp_path / "a.png").err


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (KeyboardInterrupt(), 130, ""),
        (MemoryError(), 2, "aicore: not enough memory for these operands; use smaller ones\n"),
        (OSError(28, "No space left on device", "f.png"), 2, "aicore: f.png: No space left on device\n"),
    ],
)
def test_what_happens_on_the_way_ends_quietly(aicore, monkeypatch, error, status, text):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(ops, "plan_reduce_sum", fail)
    result = aicore("plan", "4,2")
    assert (result.status, result.out, result.err) == (status, "", text)


def test_a_fault_of_ours_is_not_hidden(aicore, monkeypatch):
    def fail(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr(ops, "plan_reduce_sum", fail)
    with pytest.raises(ZeroDivisionError):
        aicore("plan", "4,2")


def test_a_reader_that_leaves_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)
    code = "import sys; from viz.cli import main; sys.exit(main(['products']))"
    process = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    os.close(writer)
    assert (process.returncode, process.stderr) == (141, "")


def test_run_draws_a_timeline(aicore, example, tmp_path):
    path = tmp_path / "t.png"
    result = aicore("run", example, "--timeline", path)
    assert (result.status, result.err) == (0, "") and path.read_bytes().startswith(b"\x89PNG")
    refused = aicore("run", example, "--timeline", tmp_path / "none" / "t.png")
    assert refused.status == 2 and "--timeline" in refused.err and "existing folder" in refused.err


def test_products_list_the_timing_model(aicore):
    text = aicore("products", "Ascend910B1", "--timing").out
    rows = json.loads(aicore("products", "Ascend910B1", "--timing", "--json").out)
    assert {r["kind"] for r in rows} <= {"measured", "published", "assumed", "what-if"} and len(rows) > 20
    assert all(r["name"] in text and r["source"] for r in rows)
    assert aicore("products", "--timing").status == 2
