"""The record of a plan and of a run."""

from dataclasses import replace
from fractions import Fraction

import numpy as np

import ops
from emulator import products
from studies.summary import summarize_input, summarize_plan, summarize_run


def operands(shape=(6, 3, 5), dtype=np.float32):
    rng = np.random.default_rng(1)
    g, x = (rng.standard_normal(shape).astype(dtype) for _ in range(2))
    mean, invstd = np.array([0.5, -2, 0], np.float32), np.array([2, 3, 1], np.float32)
    return ops.Operands(grad_out=g, input=x, mean=mean, invstd=invstd, weight=None, name="made")


def run(o, **options):
    return ops.batch_norm_reduce_backward(o.grad_out, o.input, o.mean, o.invstd, **options)


def test_plan_covers_every_element_once():
    for shape, product in (((4096, 256), "950"), ((32, 64, 56, 56), "A2"), ((7, 1), "910A"), ((1, 9), "950")):
        plan = summarize_plan(ops.plan_reduce_sum(shape, product=product))
        assert sum(w.elements for w in plan.work) == np.prod(shape)
        assert plan.least_elements <= plan.most_elements == max(w.elements for w in plan.work)
        assert plan.ub_used_bytes == sum(size for _, size in plan.ub_buffers) <= plan.ub_bytes
        combined = [c for part in plan.combine for c in range(*part.channels)]
        assert combined == (list(range(plan.channels)) if plan.group_r > 1 else [])


def test_r_tiles_name_what_they_split():
    def split(shape, product="950"):
        plan = summarize_plan(ops.plan_reduce_sum(shape, product=product))
        return plan.r_split, plan.r_tiles, plan.unit_r, plan.r_tile_elements

    assert split((4, 2)) == ("none", 1, 4, 4)
    assert split((32, 64, 56, 56)) == ("N", 11, 3, 9408)
    assert split((32, 64, 56, 56), "A2") == ("spatial", 128, 808, 808)


def test_input_ratio_is_mean_over_sigma():
    summary = summarize_input(operands())
    assert (summary.least_ratio, summary.largest_ratio, summary.largest_ratio_channel) == (0, 6, 1)
    broken = replace(operands(), mean=np.array([np.nan, 1, np.inf], np.float32))
    assert (summarize_input(broken).least_ratio, summarize_input(broken).largest_ratio_channel) == (3, 1)
    none = summarize_input(replace(operands(), mean=np.full(3, np.nan, np.float32)))
    assert (none.least_ratio, none.largest_ratio, none.largest_ratio_channel) == (None, None, None)


def test_run_counts_the_instructions_of_both_sums():
    o = operands()
    chip = products.get("950").replace(vector_cores=3)
    grads = run(o, product=chip, engine="instruction")
    summary = summarize_run(o, grads)
    launches = dict(grads.run.launches)
    for core, work in enumerate(summary.plan.work):
        for pipe, n in work.instructions.items():
            both = [launches[f"ReduceSum {name}"].instructions_by_pipe()[pipe][core] for name in ("sum_dy", "sum_dy_x")]
            assert n == sum(both)
    assert [launch.step for launch in summary.launches] == [step for step, _ in grads.run.launches]
    for launch, (_, made) in zip(summary.launches, grads.run.launches, strict=True):
        assert launch.bytes_in == made.bytes_by_pipe()["MTE2"].sum()
        assert launch.bytes_out == made.bytes_by_pipe()["MTE3"].sum()


def test_partial_sums_are_those_of_the_run():
    rng = np.random.default_rng(2)
    g, x = (rng.standard_normal((4096, 3)).astype(np.float32) for _ in range(2))
    o = replace(operands(), grad_out=g, input=x)
    grads = run(o)
    plan = summarize_run(o, grads).plan
    assert plan.group_r > 1
    for name, rows in grads.run.partials.items():
        assert [w.partials[name] for w in plan.work] == [tuple(row.tolist()) for row in rows]


def test_outputs_stand_beside_the_exact_results():
    o = operands(dtype=np.float16)
    grads = run(o, weight_g=False)
    by_name = {output.name: output for output in summarize_run(o, grads, exact_channels=2).outputs}
    assert by_name["grad_weight"].values is None and by_name["grad_weight"].error_ulp is None
    sum_dy = by_name["sum_dy"]
    exact = [sum(map(Fraction, map(float, o.grad_out[:, c].ravel()))) for c in range(2)]
    assert list(sum_dy.exact) == exact
    assert len(sum_dy.values) == 3 and len(sum_dy.rounded) == 2
    assert sum_dy.rounded == tuple(float(np.float16(float(e))) for e in exact)
    assert sum_dy.largest_error_ulp == max(sum_dy.error_ulp) == sum_dy.error_ulp[sum_dy.largest_error_channel]
    assert summarize_run(o, grads, exact_channels=99).exact_channels == 3


def test_the_fast_engine_counts_no_instructions():
    summary = summarize_run(operands(), run(operands()))
    assert summary.launches == ()
    assert all(w.instructions == {} for w in summary.plan.work)
