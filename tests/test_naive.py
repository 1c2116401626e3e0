"""The oracle against the published check values: tilings, trees as text, and bit patterns."""

import hashlib
import itertools
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import naive

A950 = (64, 253952)  # vector cores, UB bytes
A2_LIKE = (48, 196608)

# x = default_rng(seed).standard_normal(shape, float32), summed over every axis but 1. The bits come from an
# evaluator written apart from this one.
# fmt: off
# (shape, seed, vector_cores, ub_bytes, cores, group_r, workspace, first bit patterns, sha256 of all bits)
CASES = [
    ((4, 2), 1000, 64, 253952, 1, 1, 16777216, "3fc8f58e bca247d0",
     "482de66087922aabd4b1bb7bed7d7b6df344d5d5d139b30b48e0551217db3f33"),
    ((4, 2), 1000, 48, 196608, 1, 1, 16777216, "3fc8f58e bca247d0",
     "482de66087922aabd4b1bb7bed7d7b6df344d5d5d139b30b48e0551217db3f33"),
    ((2, 3, 4, 5), 1001, 64, 253952, 1, 1, 16777216, "40658693 be7393a0 c033209e",
     "929950feb937700195325a23e2fbd452017ea8c47f8726aa2905ecf43cdd8b62"),
    ((2, 3, 4, 5), 1001, 48, 196608, 1, 1, 16777216, "40658693 be7393a0 c033209e",
     "929950feb937700195325a23e2fbd452017ea8c47f8726aa2905ecf43cdd8b62"),
    ((2, 3, 1, 4), 1002, 64, 253952, 1, 1, 16777216, "3e973804 3d614e10 c021abbe",
     "61a3897d3cd434b16a19352d3d5962e7d57e13c7a76ca17321ccffe145dce1a2"),
    ((2, 3, 1, 4), 1002, 48, 196608, 1, 1, 16777216, "3e973804 3d614e10 c021abbe",
     "61a3897d3cd434b16a19352d3d5962e7d57e13c7a76ca17321ccffe145dce1a2"),
    ((7, 1), 1003, 64, 253952, 1, 1, 16777216, "c098071a",
     "ec45c68667990cc853c4e096b72b2a968007720fcdb8e025a1b0dc9ab607f960"),
    ((7, 1), 1003, 48, 196608, 1, 1, 16777216, "c098071a",
     "ec45c68667990cc853c4e096b72b2a968007720fcdb8e025a1b0dc9ab607f960"),
    ((1, 7), 1004, 64, 253952, 1, 1, 16777216, "3fb4378e bab9dc6b be3a7a33 3e782904",
     "f7ca028535de94c8f69379bbd3cc73d27e53c3a6116153930f2c7749be0e9243"),
    ((1, 7), 1004, 48, 196608, 1, 1, 16777216, "3fb4378e bab9dc6b be3a7a33 3e782904",
     "f7ca028535de94c8f69379bbd3cc73d27e53c3a6116153930f2c7749be0e9243"),
    ((1, 3, 5), 1005, 64, 253952, 1, 1, 16777216, "bfcad9de 3ef04f18 c057e61e",
     "2d9c5922ffe91b77dcb1d526259e26c579a5d0da726f40f156d02602f49e7f68"),
    ((1, 3, 5), 1005, 48, 196608, 1, 1, 16777216, "bfcad9de 3ef04f18 c057e61e",
     "2d9c5922ffe91b77dcb1d526259e26c579a5d0da726f40f156d02602f49e7f68"),
    ((128, 16), 1006, 64, 253952, 1, 1, 16777216, "c1de2e35 40298a9e 4133a50a c183ac22",
     "41bb3c8560ec56b6f59a1465c09d3c0c740d57b1a489bbb4b8ffc20eff4eda78"),
    ((128, 16), 1006, 48, 196608, 1, 1, 16777216, "c1de2e35 40298a9e 4133a50a c183ac22",
     "41bb3c8560ec56b6f59a1465c09d3c0c740d57b1a489bbb4b8ffc20eff4eda78"),
    ((5, 3, 2), 1007, 64, 253952, 1, 1, 16777216, "40118a5b be37665c 3fba9a57",
     "f8ab0aae323ff53cb3d98ddecdc22bf91bd66253803b78b5e3196f9005ea0413"),
    ((5, 3, 2), 1007, 48, 196608, 1, 1, 16777216, "40118a5b be37665c 3fba9a57",
     "f8ab0aae323ff53cb3d98ddecdc22bf91bd66253803b78b5e3196f9005ea0413"),
    ((33, 40), 1008, 64, 253952, 1, 1, 16777216, "40ba81ac 41112846 c0c4ee8f 40957241",
     "8ecdaf2b48012ead21e6fce3f5e1787ea592c63dbee0047795122a37e853241c"),
    ((33, 40), 1008, 48, 196608, 1, 1, 16777216, "40ba81ac 41112846 c0c4ee8f 40957241",
     "8ecdaf2b48012ead21e6fce3f5e1787ea592c63dbee0047795122a37e853241c"),
    ((100, 72), 1009, 64, 253952, 1, 1, 16777216, "c116e8ba c0f4bbef 41808930 406fa496",
     "e9128ad71f79ad151b86409a615ab5abc021e9db813acd2a33558533ad80ffea"),
    ((100, 72), 1009, 48, 196608, 1, 1, 16777216, "c116e8ba c0f4bbef 41808930 406fa496",
     "e9128ad71f79ad151b86409a615ab5abc021e9db813acd2a33558533ad80ffea"),
    ((300, 200), 1010, 64, 253952, 64, 16, 16842752, "c1922928 4178551b 412cda7a c1ecfc42",
     "3d1ef051829fba44eb986a3fb86860701e4a3d5552381ff039d8a60ea190b28a"),
    ((300, 200), 1010, 48, 196608, 48, 24, 16826368, "c1922928 4178551b 412cda7a c1ecfc40",
     "4c5f9d6252a778bb622af97fbcacc49d13701d8a5fe3beac4178ab52b4e2c6c8"),
    ((8, 128, 7, 7), 1011, 64, 253952, 5, 1, 16777216, "c1c4b408 40effe4a c05f9dc8 c1ca3cd9",
     "b3c41a6292d1ebf77792f2d627506b65314b67987048dfa50d5efa123771c880"),
    ((8, 128, 7, 7), 1011, 48, 196608, 7, 1, 16777216, "c1c4b408 40effe4a c05f9dc8 c1ca3cd9",
     "b3c41a6292d1ebf77792f2d627506b65314b67987048dfa50d5efa123771c880"),
    ((16, 24, 28, 28), 1012, 64, 253952, 64, 8, 16793600, "41c81aa3 c1f3648d 42986252 c2afc945",
     "0fc0a1f18c5914ec18b33f5ec69ec1f2f191bd424bf91e8f8a381f02be1f5091"),
    ((16, 24, 28, 28), 1012, 48, 196608, 48, 2, 16789504, "41c81aaa c1f36498 4298624f c2afc944",
     "1533b44a91b4548ebb4a4b683b4c4672fcec4e0d3ba513b581c5a4ff2762ad06"),
    ((32, 64, 56, 56), 1013, 64, 253952, 64, 1, 16777216, "423fc71e 4419302a c40b9643 43aa51ea",
     "75b08eca90897c6e8eb4408d8980df6306c57db7463cd30416ad3ce934373f4b"),
    ((32, 64, 56, 56), 1013, 48, 196608, 48, 8, 16789504, "423fc735 4419302a c40b9643 43aa51ec",
     "1cf777fc61e0f3fffb829c6e62a85c32618ad7c8f8b8e1d63d1d88f2df7ab1e7"),
    ((4096, 256), 1014, 64, 253952, 62, 31, 16842752, "c0cd2970 4292c59b c2275278 c2242fed",
     "235ca9ff999b2345f259109519c7cf625be39a70d36aff3d9f854ed35ea5c134"),
    ((4096, 256), 1014, 48, 196608, 46, 23, 16826368, "c0cd296e 4292c59c c2275274 c2242fed",
     "078a405b034b5e1ea9527963113983ba1e0ed956fc720b1a0f1a6bd3cc18eb36"),
    ((1, 3, 1000, 1000), 1015, 64, 253952, 51, 17, 16793600, "c4db38e4 443cba46 43636cbc",
     "b1a63d5728c0e3c8195c8a01e1352428720fb896c2e8c242a1c58f51bd234b74"),
    ((1, 3, 1000, 1000), 1015, 48, 196608, 48, 48, 16789504, "c4db38e0 443cba49 43636cb6",
     "03ebe978a393818e15100fb10d6d7f79ca3e0bcba2c8cab370d53ff422f4a6a2"),
    ((64, 16, 8, 8), 1016, 64, 253952, 8, 1, 16777216, "c1824b49 c2d5b6c8 42ab34dd c0e61e80",
     "4e5a3c65c70f8e047d21b1f958a55cc395d7275221330cabbf1981774514b2d3"),
    ((64, 16, 8, 8), 1016, 48, 196608, 48, 8, 16789504, "c1824b4c c2d5b6c8 42ab34df c0e61e80",
     "5728d41ed1f8629144f742a2ec2b65ffbb833a2680ba2704b4c0621a88f67e7b"),
    ((128, 32, 4, 4), 1017, 64, 253952, 7, 1, 16777216, "c0ba8bb8 41ecf622 404776b8 4263f0d3",
     "e1aaeaad4e0dc1ad1d65f5b92ceb0f18d1a3c390f456a20ce4eb6fdab8d793b0"),
    ((128, 32, 4, 4), 1017, 48, 196608, 48, 8, 16789504, "c0ba8bb8 41ecf626 404776b8 4263f0d4",
     "1d98c0036e7f06cda9bcf8546e9fba57435e595567f17811654f205f387b1d36"),
    ((256, 96), 1018, 64, 253952, 64, 64, 16809984, "c161346b c01132f0 c1bbdbbc c19de1dc",
     "9fd0b83ae50f156530c2c3aaafb01503f8cf6a0e1a5ab691b2adc7e8b3ffe2f6"),
    ((256, 96), 1018, 48, 196608, 48, 24, 16801792, "c161346a c01132f8 c1bbdbbe c19de1dc",
     "1a4625f9ffcb5656a9931f3e89200818e42460c85d3d9fa2178a4d98dd5311cf"),
    ((4, 3, 2, 2, 3), 1019, 64, 253952, 1, 1, 16777216, "410d3de3 4095dca9 410660d6",
     "a7f8d39fcce7624338bee3934ecbb228d8f7035ece0ca57f8d803784e6078b0c"),
    ((4, 3, 2, 2, 3), 1019, 48, 196608, 1, 1, 16777216, "410d3de3 4095dca9 410660d6",
     "a7f8d39fcce7624338bee3934ecbb228d8f7035ece0ca57f8d803784e6078b0c"),
    ((3, 5, 2, 3, 4, 3), 1020, 64, 253952, 1, 1, 16777216, "c0aa3208 41b63f6e 41873160 4116f3d2",
     "c99eab4723f03ecd8338d463ae6713a7065e8d5623ac795f9b964c057a752df7"),
    ((3, 5, 2, 3, 4, 3), 1020, 48, 196608, 1, 1, 16777216, "c0aa3208 41b63f6e 41873160 4116f3d2",
     "c99eab4723f03ecd8338d463ae6713a7065e8d5623ac795f9b964c057a752df7"),
]
# fmt: on


def normal(shape, seed):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def bits(x):
    return np.asarray(x, np.float32).view(np.uint32)


def case_name(case):
    return "x".join(map(str, case[0])) + f"-{case[2]}cores"


@pytest.mark.parametrize("case", CASES, ids=map(case_name, CASES))
def test_published_bits(case):
    shape, seed, vector_cores, ub_bytes, cores, group_r, workspace, first, sha256 = case
    plan = naive.tiling(shape, vector_cores, ub_bytes)
    assert (plan["cores"], plan["group_r"], plan["workspace"]) == (cores, group_r, workspace)
    x = normal(shape, seed)
    total, partials = naive.reduce_sum(x, vector_cores, ub_bytes)
    assert total.dtype == partials.dtype == np.float32
    assert total.shape == (shape[1],)
    assert partials.shape == (group_r, shape[1])
    assert not np.isnan(partials).any()
    assert [f"{b:08x}" for b in bits(total[:4])] == first.split()
    assert hashlib.sha256(total.astype("<f4").tobytes()).hexdigest() == sha256


def test_a_wrong_order_gives_other_bits():
    x = normal((33, 40), 1008)
    total, _ = naive.reduce_sum(x, *A950)
    sequential = x[0].copy()
    for row in x[1:]:
        sequential = sequential + row
    assert (bits(sequential) != bits(total)).any()
    halving = naive.in_tile_ra(x, 8)
    assert (bits(halving) != bits(total)).any()


# Section 2.1


@pytest.mark.parametrize(
    ("shape", "expected", "kinds"),
    [
        ((4, 2), [1, 4, 2], "ARA"),
        ((32, 64, 56, 56), [1, 32, 64, 3136], "ARAR"),
        ((1, 3, 5), [3, 5], "AR"),
        ((1, 7), [7], "A"),
        ((1, 7, 1, 1), [7], "A"),
        ((7, 1), [1, 7], "AR"),
        ((2, 1, 3, 1, 4), [1, 24], "AR"),
        ((1, 1, 5), [1, 5], "AR"),
        ((1, 1), [1], "A"),
        ((6, 5, 1, 1), [1, 6, 5], "ARA"),
        ((2, 3, 1, 4), [1, 2, 3, 4], "ARAR"),
    ],
)
def test_canonical(shape, expected, kinds):
    assert naive.canonical(shape) == expected
    assert naive.pattern(expected) == kinds


def test_canonical_with_another_kept_axis():
    assert naive.canonical((5, 3, 2), axes_all_but=0) == [5, 6]
    assert naive.canonical((5, 3, 2), axes_all_but=2) == [1, 15, 2]


# Sections 3 and 7

UNIT = ("idx", "step", "outer")

# (shape, canonical, unit A, unit R, factor_a, factor_r, group_r, cores, workspace) for 64 cores and 253952 B
TILINGS = [
    ((2, 3, 4, 5), [1, 2, 3, 20], (0, 1, 1), (-1, 1, 1), 1, 1, 1, 1, 16777216),
    ((128, 16), [1, 128, 16], (0, 1, 1), (-1, 1, 1), 1, 1, 1, 1, 16777216),
    ((8, 2048, 7, 7), [1, 8, 2048, 49], (2, 26, 79), (-1, 1, 1), 2, 1, 1, 40, 16777216),
    ((4096, 256), [1, 4096, 256], (2, 128, 2), (1, 67, 62), 1, 2, 31, 62, 16842752),
    ((256, 256, 14, 14), [1, 256, 256, 196], (2, 1, 256), (1, 58, 5), 4, 5, 1, 64, 16777216),
    ((1, 3, 1000, 1000), [3, 1000000], (0, 1, 3), (1, 11776, 85), 1, 5, 17, 51, 16793600),
    ((32, 64, 56, 56), [1, 32, 64, 3136], (2, 1, 64), (1, 3, 11), 1, 11, 1, 64, 16777216),
    ((4, 2), [1, 4, 2], (0, 1, 1), (-1, 1, 1), 1, 1, 1, 1, 16777216),
]


@pytest.mark.parametrize("row", TILINGS, ids=lambda row: "x".join(map(str, row[0])))
def test_published_tilings(row):
    shape, dims, unit_a, unit_r, factor_a, factor_r, group_r, cores, workspace = row
    plan = naive.tiling(shape, *A950)
    assert plan["canonical"] == dims
    assert tuple(plan["unit_a"][key] for key in UNIT) == unit_a
    assert tuple(plan["unit_r"][key] for key in UNIT) == unit_r
    assert (plan["factor_a"], plan["factor_r"], plan["group_r"]) == (factor_a, factor_r, group_r)
    assert (plan["cores"], plan["workspace"]) == (cores, workspace)


@pytest.mark.parametrize(("machine", "basic", "result"), [(A950, 43008, 10752), (A2_LIKE, 32768, 8192)])
def test_four_by_two(machine, basic, result):
    plan = naive.tiling((4, 2), *machine)
    assert (plan["basic_block"], plan["result_block"]) == (basic, result)
    assert (plan["cl_axis"], plan["a_size"], plan["r_size"]) == (0, 8, 4)
    assert plan["use_nddma"] == 1
    slices = naive.tile_slices(plan, 0, 0)
    assert naive.tile_lanes(plan, slices) == 8
    assert plan["cores"] == plan["group_r"] == 1
    for channel in (0, 1):
        text = naive.render(naive.tree((4, 2), *machine, channel), (4, 2))
        c = channel
        assert text == f"(x[0,{c}] + x[2,{c}]) + (x[1,{c}] + x[3,{c}])"


def test_resnet_layer_on_950():
    plan = naive.tiling((32, 64, 56, 56), *A950)
    assert (plan["basic_block"], plan["result_block"]) == (47104, 512)
    assert (plan["cl_axis"], plan["cl_step"], plan["cl_outer"]) == (3, 64, 49)
    assert plan["unit_r"]["inner"] == 9408
    ones = np.ones((1, 32, 64, 3136), np.float32)
    last = naive.tile_matrix(ones, plan, naive.tile_slices(plan, 5, 10), 0.0)
    assert last.shape == (1, 9408)
    assert (last[0, :6272] == 1).all()
    assert (last[0, 6272:] == 0).all()


def test_resnet_layer_on_48_cores():
    plan = naive.tiling((32, 64, 56, 56), *A2_LIKE)
    assert plan["basic_block"] == 35840
    assert tuple(plan["unit_a"][key] for key in UNIT) == (2, 11, 6)
    assert tuple(plan["unit_r"][key] for key in UNIT) == (3, 808, 128)
    assert (plan["factor_a"], plan["factor_r"], plan["group_r"]) == (1, 16, 8)
    assert (plan["cores"], plan["workspace"]) == (48, 16789504)
    # R tile 16 g + 4 n + s is piece s of row 4 g + n; the last piece of a row is 712 long, padded to 808.
    slices = naive.tile_slices(plan, 0, 16 * 3 + 4 * 2 + 3)
    assert (slices[1], slices[2], slices[3]) == (slice(14, 15), slice(0, 11), slice(2424, 3136))
    ones = np.ones((1, 32, 64, 3136), np.float32)
    matrix = naive.tile_matrix(ones, plan, slices, 0.0)
    assert matrix.shape == (11, 808)
    assert (matrix.sum(axis=1) == 712).all()


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((8, 2048, 7, 7), 0),  # last dim 49
        ((5, 3, 2), 1),  # three dims inside the cache-line axis
        ((20000, 10, 4), 1),  # two, and a cache-line step of 2
        ((100, 16, 4), 0),  # two, a step of 1, and 92 * 4 reduced elements
        ((2, 40, 3), 1),  # one, and 2 * 3 reduced elements
        ((3, 40, 3), 0),  # one, and 3 * 3 reduced elements
        ((100, 7), 1),  # one, and 7 lanes
    ],
)
def test_nddma(shape, expected):
    assert naive.tiling(shape, *A950)["use_nddma"] == expected


def test_pads_with_and_without_nddma():
    def positions(n):
        root = naive.tree((n, 40, 3), *A950, 0)
        return [node.index if isinstance(node, naive.Leaf) else "0" for node in naive.leaves(root)]

    assert positions(2) == [0, 1, 2, 120, 121, 122, "0", "0"]
    # Three blocks of 8: each lane adds block 2 to (block 1 + block 0).
    assert positions(3) == [240, 120, 0, 241, 121, 1, 242, 122, 2] + ["0"] * 15


def test_the_last_lanes_of_a_tail_tile_choose_their_own_grouping():
    """Lanes count what the tile holds, not ubFactorA: 35 rows are grouped in 64 lanes and halved in 32."""
    shape = (35, 224)
    plan = naive.tiling(shape, *A2_LIKE)
    assert (plan["unit_a"]["step"], plan["unit_a"]["outer"], plan["unit_r"]["idx"]) == (64, 4, -1)
    lanes = [naive.tile_lanes(plan, naive.tile_slices(plan, tile, 0)) for tile in range(4)]
    assert lanes == [64, 64, 64, 32]


def test_groups_that_do_not_fit_the_basic_block_are_refused():
    assert naive.tiling((1, 3, 1000, 1000), 64, 196608)["group_r"] > 1
    with pytest.raises(ValueError, match="partial rows of 64 floats do not fit the basic block"):
        naive.tiling((1, 1, 1000, 1000), 64, 65536)


@pytest.mark.parametrize(
    ("shape", "machine", "message"),
    [
        ((0, 3), A950, "empty tensor"),
        ((2, 3), (0, 253952), "vector_cores"),
        ((2, 3), (1, 16384), "no room"),
        ((2, 3), (1, 1024), "no room"),
    ],
)
def test_impossible_machines_are_refused(shape, machine, message):
    with pytest.raises(ValueError, match=message):
        naive.tiling(shape, *machine)


# Section 4.2


class Tile:
    """A tile as text; adding two tiles element by element is written a|b."""

    def __init__(self, text):
        self.text = text

    def __add__(self, other):
        return Tile(f"{self.text}|{other.text}")


class Value:
    """An InTile result as text."""

    def __init__(self, text):
        self.text = text

    def __add__(self, other):
        def operand(text):
            return f"({text})" if "+" in text else text

        return Value(f"{operand(self.text)}+{operand(other.text)}")


def merged(n):
    return naive.merge_tiles(
        n,
        lambda i: Tile(f"T{i}"),
        lambda tile: Value(f"[{tile.text}]" if "|" in tile.text else tile.text),
    ).text


@pytest.mark.parametrize(
    ("n", "text"),
    [
        (1, "T0"),
        (2, "[T0|T1]"),
        (3, "T1+[T0|T2]"),
        (4, "[T1|T3]+[T0|T2]"),
        (5, "(T3+T2)+(T1+[T0|T4])"),
        (8, "([T3|T7]+[T2|T6])+([T1|T5]+[T0|T4])"),
        (11, "((T7+T6)+(T5+T4))+((T3+[T2|T10])+([T1|T9]+[T0|T8]))"),
    ],
)
def test_tile_trees(n, text):
    assert merged(n) == text


def test_nearest_power2():
    expected = {0: 0, 1: 1, 2: 1, 3: 2, 4: 2, 5: 4, 8: 4, 9: 8, 16: 8, 17: 16}
    assert {n: naive.nearest_power2(n) for n in expected} == expected


# Sections 4.3 and 4.4


def symbols(rows, columns=1):
    return naive.to_nodes(np.arange(rows * columns).reshape(rows, columns))


def row_tree(k):
    return naive.in_tile_ar(symbols(1, k))[0]


def column_tree(k, lanes):
    return naive.in_tile_ra(symbols(k), lanes)[0]


def leaf(i):
    return naive.Leaf(i)


def pair_tree(lanes):
    while len(lanes) > 1:
        lanes = [naive.Add(a, b) for a, b in zip(lanes[0::2], lanes[1::2], strict=True)]
    return lanes[0]


def test_row_of_8():
    assert naive.render(row_tree(8)) == ("((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]))")


def test_row_of_24_goes_block_by_block():
    assert row_tree(24) == pair_tree([leaf(16 + i) + (leaf(8 + i) + leaf(i)) for i in range(8)])


@pytest.mark.parametrize("k", [32, 40, 56, 64])
def test_row_of_one_register(k):
    assert row_tree(k) == pair_tree([leaf(i) if i < k else naive.ZERO for i in range(64)])


def test_row_of_72_folds_its_tail_first():
    assert row_tree(72) == pair_tree([leaf(i) + leaf(64 + i) if i < 8 else leaf(i) for i in range(64)])


def test_row_of_512_halves_8_registers():
    def lane(i):
        v = [leaf(64 * j + i) for j in range(8)]
        return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]))

    assert row_tree(512) == pair_tree([lane(i) for i in range(64)])


def test_row_of_2048_groups_16_consecutive_registers():
    def group(v):
        while len(v) > 1:
            v = [a + b for a, b in zip(v[: len(v) // 2], v[len(v) // 2 :], strict=True)]
        return v[0]

    def lane(i):
        v = [leaf(64 * j + i) for j in range(32)]
        return group(v[:16]) + group(v[16:])

    assert row_tree(2048) == pair_tree([lane(i) for i in range(64)])


def test_wide_rows_are_halved_and_middle_rows_are_grouped():
    for k in range(1, 80):
        halving = column_tree(k, 8)
        assert column_tree(k, 32) == halving
        assert column_tree(k, 72) == halving
        assert (column_tree(k, 40) == halving) == (k <= 31)
        assert column_tree(k, 64) == column_tree(k, 40)


def test_rows_of_32_in_64_lanes():
    assert column_tree(32, 64) == column_tree(16, 8) + naive.in_tile_ra(symbols(32)[16:], 8)[0]


def test_stage_two_of_eight_partials():
    assert naive.render(column_tree(8, 64)) == ("((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]))")


# Whole trees


def test_pads_of_2_3_4_5():
    root = naive.tree((2, 3, 4, 5), *A950, 1)
    data = [[leaf(n * 60 + 20 + s) for s in range(20)] for n in range(2)]
    zeros = [naive.ZERO]
    assert root == pair_tree(data[0] + zeros * 4 + data[1] + zeros * 4 + zeros * 16)


def test_unpadded_rows_with_nddma():
    shape = (2, 3, 1, 4)
    assert naive.tiling(shape, *A950)["use_nddma"] == 1
    root = naive.tree(shape, *A950, 2)
    assert root == pair_tree([leaf(n * 12 + 8 + s) for n in range(2) for s in range(4)])


def test_tree_of_8_2048_7_7():
    shape = (8, 2048, 7, 7)
    padded = [leaf((n * 2048 + 2047) * 49 + s) if s < 49 else naive.ZERO for n in range(8) for s in range(56)]
    folded = [padded[i] + padded[256 + i] if i < 192 else padded[i] for i in range(256)]
    v = [folded[64 * j : 64 * j + 64] for j in range(4)]
    lanes = [(v[0][i] + v[2][i]) + (v[1][i] + v[3][i]) for i in range(64)]
    assert naive.tree(shape, *A950, 2047) == pair_tree(lanes)


def test_tree_of_4096_256():
    def halve(rows):
        while len(rows) > 1:
            rows = [a + b for a, b in zip(rows[: len(rows) // 2], rows[len(rows) // 2 :], strict=True)]
        return rows[0]

    def row(i):
        return leaf(i * 256 + 200) if i < 4096 else naive.ZERO

    partials = []
    for first in range(0, 62 * 67, 2 * 67):
        rows = [row(first + i) + row(first + 67 + i) for i in range(67)]
        partials.append(halve([rows[i] + rows[64 + i] if i < 3 else rows[i] for i in range(64)]))
    assert len(partials) == 31
    total = halve([partials[i] + partials[16 + i] if i < 15 else partials[i] for i in range(16)])
    assert naive.tree((4096, 256), *A950, 200) == total


SHAPES = [
    (4, 2),
    (1, 7),
    (1, 1),
    (7, 1),
    (33, 40),
    (100, 72),
    (300, 200),
    (700, 97),
    (5, 3, 2),
    (2, 3, 1, 4),
    (2, 3, 4, 5),
    (8, 33, 7, 7),
    (16, 24, 28, 28),
    (1, 2, 300, 300),
    (3, 5, 2, 3, 4, 3),
]
MACHINES = [A950, A2_LIKE, (8, 131072), (1, 253952)]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_tree_gives_the_bits_and_every_element_once(shape, machine):
    x = normal(shape, 7)
    total, _ = naive.reduce_sum(x, *machine)
    flat_index = np.arange(x.size).reshape(shape)
    for channel in {0, shape[1] // 2, shape[1] - 1}:
        root = naive.tree(shape, *machine, channel)
        assert bits(naive.evaluate(root, x)) == bits(total[channel])
        found = sorted(node.index for node in naive.leaves(root) if isinstance(node, naive.Leaf))
        assert found == sorted(flat_index[:, channel].reshape(-1).tolist())


@pytest.mark.parametrize("machine", [A950, A2_LIKE])
def test_a_tree_of_1e5_leaves(machine):
    shape = (32, 64, 56, 56)
    x = normal(shape, 1013)
    root = naive.tree(shape, *machine, 63)
    data = [node for node in naive.leaves(root) if isinstance(node, naive.Leaf)]
    assert len(data) == len(set(data)) == 32 * 56 * 56
    total, _ = naive.reduce_sum(x, *machine)
    assert bits(naive.evaluate(root, x)) == bits(total[63])


def test_evaluate_and_render_need_no_recursion():
    root = leaf(0)
    for _ in range(100_000):
        root = root + naive.ZERO
    assert naive.evaluate(root, np.array([3.0], np.float32)) == 3
    assert naive.render(root).endswith(" + 0")
    assert len(naive.leaves(root)) == 100_001


# Invariants


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("shape", [*SHAPES, (4096, 256), (32, 64, 28, 28)])
def test_all_ones_count_the_elements(shape, machine):
    total, partials = naive.reduce_sum(np.ones(shape, np.float32), *machine)
    count = int(np.prod(shape)) // shape[1]
    assert (total == count).all()
    assert (partials.astype(np.int64).sum(axis=0) == count).all()


def test_a_sum_does_not_depend_on_the_channels_beside_it():
    """Tail-R rows are independent: with one R tiling, the size of the A tile changes no bit."""
    shape = (8, 128, 7, 7)
    x = normal(shape, 3)
    total, _ = naive.reduce_sum(x, *A950)
    other, _ = naive.reduce_sum(x, *A2_LIKE)
    steps = {naive.tiling(shape, *machine)["unit_a"]["step"] for machine in (A950, A2_LIKE)}
    assert len(steps) == 2
    assert (bits(total) == bits(other)).all()


def test_signs_of_zero():
    """A pad is +0.0, and -0.0 + +0.0 is +0.0; without pads a sum of -0.0 keeps its sign."""
    for length, sign in ((8, True), (7, False), (16, True), (24, True), (32, False), (64, True), (128, True)):
        total, _ = naive.reduce_sum(np.full((1, 1, length), -0.0, np.float32), *A950)
        assert np.signbit(total[0]) == sign, length
        root = naive.tree((1, 1, length), *A950, 0)
        assert np.signbit(naive.evaluate(root, np.full(length, -0.0, np.float32))) == sign


def test_infinities_pass_through():
    x = np.ones((4, 2), np.float32)
    x[:, 0] = 3e38
    x[0, 1], x[2, 1] = np.inf, -np.inf
    total, _ = naive.reduce_sum(x, *A950)
    assert np.isposinf(total[0])
    assert np.isnan(total[1])


def test_an_empty_tensor_gives_zeros():
    total, partials = naive.reduce_sum(np.zeros((0, 3), np.float32), *A950)
    assert total.tolist() == [0, 0, 0]
    assert partials.shape == (1, 3)


def test_only_float32():
    with pytest.raises(TypeError, match="float64"):
        naive.reduce_sum(np.zeros((2, 3)), *A950)


# Section 1.4


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("machine", [A950, A2_LIKE])
def test_operator_steps(dtype, machine):
    shape = (300, 70)
    g, x = normal(shape, 1).astype(dtype), normal(shape, 2).astype(dtype)
    mean, invstd = normal((70,), 3).astype(dtype), np.abs(normal((70,), 4)).astype(dtype)
    result = naive.batch_norm_reduce_backward(g, x, mean, invstd, *machine)
    exact = naive.exact(g, x, mean, invstd)
    product = g.astype(np.float32) * x.astype(np.float32)
    tree_dy_x, _ = naive.reduce_sum(product, *machine)
    assert (bits(result["sum_dy_x"]) == bits(tree_dy_x)).all()
    assert (bits(result["grad_bias"]) == bits(result["sum_dy"])).all()
    for c in range(70):
        t = np.float32(mean[c]) * result["sum_dy"][c]
        xmu = result["sum_dy_x"][c] - t
        assert bits(result["sum_dy_xmu"][c]) == bits(xmu)
        assert bits(result["grad_weight"][c]) == bits(xmu * np.float32(invstd[c]))
        size = Fraction(float(np.abs(g[:, c].astype(np.float64)).sum()))
        error = abs(Fraction(float(result["sum_dy"][c])) - exact["sum_dy"][c])
        assert error <= 20 * Fraction(1, 2**24) * size


def test_operator_on_whole_numbers_is_exact():
    rng = np.random.default_rng(5)
    g, x = (rng.integers(-8, 9, (50, 6, 3)).astype(np.float32) for _ in range(2))
    mean, invstd = rng.integers(-3, 4, 6).astype(np.float32), np.full(6, 0.5, np.float32)
    result = naive.batch_norm_reduce_backward(g, x, mean, invstd, *A950)
    exact = naive.exact(g, x, mean, invstd)
    for key in exact:
        assert [Fraction(float(v)) for v in result[key]] == exact[key]


def test_operator_wants_one_shape():
    with pytest.raises(ValueError, match="one shape"):
        naive.batch_norm_reduce_backward(np.ones((2, 3)), np.ones((3, 3)), np.ones(3), np.ones(3), *A950)


# Exact arithmetic


def test_exact_is_the_centred_sum():
    rng = np.random.default_rng(6)
    g, x = (rng.standard_normal((5, 2, 3)).astype(np.float16) for _ in range(2))
    mean, invstd = (rng.standard_normal(2).astype(np.float32) for _ in range(2))
    result = naive.exact(g, x, mean, invstd)
    for c in range(2):
        m = Fraction(float(mean[c]))
        centred = sum(
            Fraction(float(a)) * (Fraction(float(b)) - m)
            for a, b in zip(g[:, c].reshape(-1), x[:, c].reshape(-1), strict=True)
        )
        assert result["sum_dy_xmu"][c] == centred
        assert result["grad_weight"][c] == centred * Fraction(float(invstd[c]))
        assert result["sum_dy"][c] == result["grad_bias"][c]


def test_units_cover_the_smallest_float32_and_refuse_less():
    assert naive.units(np.uint32(1).view(np.float32)) == 1
    with pytest.raises(ValueError, match="not a float32 value"):
        naive.units(2.0**-150)


NUMPY_TYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_16_bit_value_and_the_points_between(dtype):
    """Each finite value rounds to itself, and between neighbours a tie goes to the even bit pattern."""
    infinity = int(np.array(np.inf, NUMPY_TYPES[dtype]).view(np.uint16))
    finite = np.arange(infinity, dtype=np.uint16).view(NUMPY_TYPES[dtype]).astype(np.float64).tolist()
    tiny = Fraction(1, 2**400)
    for pattern, (low, high) in enumerate(itertools.pairwise(finite)):
        exact_low = Fraction(low)
        half = (exact_low + Fraction(high)) / 2
        assert naive.round_nearest_even(exact_low, dtype) == low
        assert naive.round_nearest_even(half, dtype) == (high if pattern % 2 else low)
        if pattern % 16 == 0:
            assert naive.round_nearest_even(half - tiny, dtype) == low
            assert naive.round_nearest_even(half + tiny, dtype) == high
            assert naive.round_nearest_even(-half - tiny, dtype) == -high


@pytest.mark.parametrize("dtype", list(NUMPY_TYPES))
def test_overflow_and_zero(dtype):
    precision, _, largest = naive.FORMATS[dtype]
    top = Fraction(2**precision - 1) * Fraction(2) ** (largest - precision + 1)
    half_step = Fraction(2) ** (largest - precision)
    assert naive.round_nearest_even(top, dtype) == top
    assert naive.round_nearest_even(top + half_step - 1, dtype) == top
    assert naive.round_nearest_even(top + half_step, dtype) == np.inf
    assert naive.round_nearest_even(-top - half_step, dtype) == -np.inf
    assert not np.signbit(naive.round_nearest_even(Fraction(0), dtype))
    vanished = naive.round_nearest_even(Fraction(-1, 2**2000), dtype)
    assert vanished == 0
    assert np.signbit(vanished)


@pytest.mark.parametrize("dtype", list(NUMPY_TYPES))
def test_rounding_agrees_with_the_array_types(dtype):
    rng = np.random.default_rng(8)
    source = np.float64 if dtype == "float32" else np.float32
    with np.errstate(all="ignore"):
        values = (rng.standard_normal(4000) * 2.0 ** rng.integers(-160, 130, 4000)).astype(source)
        if dtype == "float16":
            values = np.concatenate([values, (rng.standard_normal(4000) * 2.0 ** -rng.integers(0, 30, 4000))])
        values = values.astype(source)
        expected = values.astype(NUMPY_TYPES[dtype]).astype(np.float64)
    for value, rounded in zip(values[np.isfinite(values)], expected[np.isfinite(values)], strict=True):
        got = naive.round_nearest_even(Fraction(float(value)), dtype)
        assert got == rounded
        assert value == 0 or np.signbit(got) == np.signbit(rounded)
