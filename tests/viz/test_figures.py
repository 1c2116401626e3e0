"""Pictures: read back from the figure's own objects; nothing is cut off; files have a sensible size."""

import io
import struct

import pytest
from matplotlib.patches import Rectangle

import ops
from emulator import products
from ops.reduce_sum.tree import addition_tree
from studies.summary import summarize_plan
from viz.figures import plan_figure
from viz.style import FEW, core_colours, ink_on
from viz.tree_figure import tree_figure

CASES = [
    ((4, 2), "950"),
    ((32, 64, 56, 56), "950"),
    ((4096, 256), "950"),
    ((32, 64, 56, 56), "A2"),
    ((1, 16), "950"),
    ((1000000, 3), "910A"),
]


def plan_of(shape, product, **changes):
    return summarize_plan(ops.plan_reduce_sum(shape, product=products.get(product).replace(**changes)))


def texts(figure):
    return [t.get_text() for t in figure.findobj(lambda o: hasattr(o, "get_text")) if t.get_text()]


def png_size(figure):
    stream = io.BytesIO()
    figure.savefig(stream, format="png")
    data = stream.getvalue()
    assert data.startswith(b"\x89PNG\r\n\x1a\n") and len(data) > 5000
    return struct.unpack(">II", data[16:24])


def assert_inside(figure):
    """Nothing that is drawn leaves the picture."""
    figure.canvas.draw()
    box = figure.get_tightbbox()
    width, height = figure.get_size_inches()
    assert 0 <= box.x0 <= box.x1 <= width and 0 <= box.y0 <= box.y1 <= height, (box, width, height)


@pytest.mark.parametrize(("shape", "product"), CASES)
def test_plan_figure(shape, product):
    plan = plan_of(shape, product)
    figure = plan_figure(plan)
    boxes = [p.get_bbox().bounds for p in figure.axes[0].patches if isinstance(p, Rectangle)]
    wanted = [
        (w.channels[0], w.r_tiles[0], w.channels[1] - w.channels[0], w.r_tiles[1] - w.r_tiles[0]) for w in plan.work
    ]
    assert boxes[: plan.cores] == wanted
    assert len(boxes) == plan.cores + len(plan.combine)
    words = " ".join(texts(figure))
    assert plan.product.name in words and f"fidelity: {plan.product.fidelity}" in words
    assert ("no combine: one core per channel group" in words) == (plan.group_r == 1)
    assert "channel (index on axis 1)" in words and "R tile (index; " in words
    assert_inside(figure)
    width, height = png_size(figure)
    assert 1000 <= width <= 2500 and 600 <= height <= 1500


def test_every_core_of_a_group_sends_an_arrow():
    plan = plan_of((32, 64, 56, 56), "A2")
    arrows = [t for t in plan_figure(plan).axes[0].texts if getattr(t, "arrow_patch", None) is not None]
    assert len(arrows) == plan.cores == 48
    ends = {round(t.xy[1], 6) for t in arrows}
    assert len(ends) == 1
    for work, arrow in zip(plan.work, arrows, strict=True):
        assert work.channels[0] < arrow.xy[0] < work.channels[1]


def test_many_cores_send_one_arrow_for_each_channel_group():
    plan = plan_of((40000, 400), "950", vector_cores=400)
    assert plan.cores > 128 and plan.group_r > 1
    arrows = [t for t in plan_figure(plan).axes[0].texts if getattr(t, "arrow_patch", None) is not None]
    assert len(arrows) == plan.cores // plan.group_r


def test_few_cores_have_a_legend_and_many_a_colourbar():
    few = plan_figure(plan_of((4096, 256), "950", vector_cores=6))
    assert "0: channels 0-119,\n    R tiles 0-20" in texts(few)
    assert_inside(few)
    assert "core (block index)" in texts(plan_figure(plan_of((4096, 256), "950")))


def test_hand_made_plan(grouped_plan):
    figure = plan_figure(grouped_plan)
    assert "2 partial sums\nper channel" in texts(figure)
    assert any("what-if: vector_cores 48 -> 5" in t.replace("\n", " ") for t in texts(figure))
    assert_inside(figure)


def test_a_long_label_is_broken():
    plan = plan_of((64, 8), "950", vector_cores=3, ub_bytes=131072, clock_mhz=1000, l2_bytes=2**20, event_ids=4)
    assert_inside(plan_figure(plan))


def test_colours_differ():
    assert len(set(core_colours(FEW))) == FEW
    assert len(set(core_colours(72))) == 72
    assert (ink_on("#FFFFFF"), ink_on("#000000")) == ("black", "white")


@pytest.mark.parametrize("shape", [(4, 2), (8, 3, 7), (9, 4), (1, 16), (64, 3, 9, 9), (20000, 2)])
def test_tree_figure(shape):
    plan = ops.plan_reduce_sum(shape)
    tree = addition_tree(plan, 1)
    figure = tree_figure(tree, plan.product)
    words = texts(figure)
    assert any(plan.product.name in w and "fidelity: source" in w for w in words)
    drawn = 2 <= tree.leaves + tree.pads <= 128
    assert len(figure.axes) == 1 + drawn
    if drawn:
        assert sum(w.startswith("x[") for w in words) == tree.leaves
        dots = sum(len(c.get_offsets()) for c in figure.axes[1].collections)
        assert dots >= len(tree.nodes()[0]) + tree.leaves + tree.pads
    assert_inside(figure)
    width, height = png_size(figure)
    assert 900 <= width <= 4000 and 600 <= height <= 1500
