"""Status and message of the first phase for hundreds of argument combinations, generated from the rules.

The rules are written down once more here (op_api_rules.json, reduce_spec 1.1), not taken from the product.
"""

import re

import pytest
from acl_calls import INPUTS, MASK_OF, OUTPUTS, PRODUCTS, Call

from ops import acl, aclnn

NULLPTR, INVALID, INNER_NULLPTR = 161001, 161002, 561103

DTYPES = [t.name for t in acl.aclDataType]
PRIVATE = (
    "NC1HWC0", "FRACTAL_Z", "NDC1HWC0", "FRACTAL_Z_3D", "FRACTAL_NZ", "NC1HWC0_C04", "FRACTAL_NZ_C0_16",
    "FRACTAL_NZ_C0_32", "FRACTAL_NZ_C0_2", "FRACTAL_NZ_C0_4", "FRACTAL_NZ_C0_8",
)  # fmt: skip
PUBLIC = ("UNDEFINED", "NCHW", "NHWC", "ND", "HWCN", "NDHWC", "NCDHW", "NC", "NCL")


def takes(product):
    return {"ACL_FLOAT", "ACL_FLOAT16"} | (set() if product == "Ascend910A" else {"ACL_BF16"})


def shown(dtype):
    names = {"ACL_FLOAT": "float32", "ACL_BF16": "bfloat16", "ACL_DT_UNDEFINED": "undefined", "ACL_DOUBLE": "float64"}
    return names.get(dtype, dtype.removeprefix("ACL_"))


def null_rows(base):
    for name in INPUTS:
        yield f"{name} null", base.set(name, null=True), NULLPTR, rf"{name}: got None; allowed: an aclTensor"
    for name in OUTPUTS:
        mask = MASK_OF[name]
        yield f"{name} null", base.set(name, null=True), NULLPTR, rf"{name}: got None; allowed: .* {mask} is true"
        yield f"{name} null, {mask} off", base.set(name, null=True).mask(**{mask: False}), 0, ""
    yield "weight null", base.set("weight", null=True), 0, ""
    off = base.set(OUTPUTS, null=True).mask(inputG=False, weightG=False, biasG=False)
    yield "all masks off", off, 0, ""


def dtype_rows(base, product):
    allowed = "float32, float16" + ("" if product == "Ascend910A" else ", bfloat16")
    for dtype in DTYPES:
        text = rf"got dtype (?i:{re.escape(shown(dtype))}); allowed: {allowed} on {product}"
        ok = dtype in takes(product)
        both = base.set(("gradOut", "input"), dtype=dtype)
        yield f"gradOut, input {dtype}", both, 0 if ok else INVALID, "" if ok else "gradOut: " + text
        for name in ("gradOut", "input"):
            same = dtype == "ACL_FLOAT"
            differs = "gradOut: got dtype .*; allowed: the dtype of input"
            code = 0 if same else INVALID
            yield (
                f"{name} {dtype}",
                base.set(name, dtype=dtype),
                code,
                "" if same else differs if ok else name + ": " + text,
            )
        for name in ("mean", "invstd", *OUTPUTS):
            yield f"{name} {dtype}", base.set(name, dtype=dtype), 0 if ok else INVALID, "" if ok else name + ": " + text
        for name in OUTPUTS:
            yield f"{name} {dtype}, masked", base.set(name, dtype=dtype).mask(**{MASK_OF[name]: False}), 0, ""
        yield f"weight {dtype}", base.set("weight", dtype=dtype), 0 if ok else INVALID, "" if ok else "weight: " + text


def format_rows(base):
    for format in PUBLIC:
        yield f"all {format}", base.set((*INPUTS, "weight", *OUTPUTS), format=format), 0, ""
        if format != "ND":
            text = f"gradOut: got format {format}; allowed: the format of input, ND"
            yield f"gradOut {format}", base.set("gradOut", format=format), INVALID, text
        for name in ("mean", "invstd", *OUTPUTS):
            yield f"{name} {format}", base.set(name, format=format), 0, ""
    for format in PRIVATE:
        text = f"got format {format}, a private format; allowed: public formats"
        yield f"gradOut, input {format}", base.set(("gradOut", "input"), format=format), INVALID, f"gradOut: {text}"
        for name in ("mean", "invstd", *OUTPUTS, "weight"):
            yield f"{name} {format}", base.set(name, format=format), INVALID, f"{name}: {text}"
        for name in OUTPUTS:
            yield f"{name} {format}, masked", base.set(name, format=format).mask(**{MASK_OF[name]: False}), 0, ""
    yield "unknown formats", base.set(("gradOut", "input"), format=999), 0, ""


def shape_rows(base):
    for rank in range(12):
        shape = (2, 3, *[1] * 10)[:rank]
        both = base.set(("gradOut", "input"), view_shape=shape)
        text = rf"gradOut: got rank {rank} .*; allowed: rank 2 to 8"
        yield f"rank {rank}", both, 0 if 2 <= rank <= 8 else INVALID, "" if 2 <= rank <= 8 else text
        if not 2 <= rank <= 8:
            for name in ("gradOut", "input"):
                text = rf"{name}: got rank {rank} .*; allowed: rank 2 to 8"
                yield f"{name} rank {rank}", base.set(name, view_shape=shape), INVALID, text
    for shape in ((2, 0), (2, 0, 4), (0, 0)):
        call = base.set(("gradOut", "input"), view_shape=shape).set(("mean", "invstd", "weight"), view_shape=(0,))
        yield f"C = 0 {shape}", call, INVALID, r"input: got shape .*; allowed: a channel axis \(axis 1\) of at least 1"
        off = call.mask(inputG=False, weightG=False, biasG=False)
        yield f"C = 0 {shape}, all masks off", off, INVALID, r"input: got shape .* of at least 1"
    for shape in ((0, 3), (2, 3, 0), (0, 3, 0)):
        yield f"empty {shape}", base.set(("gradOut", "input"), view_shape=shape), 0, ""
    for name in OUTPUTS:
        for shape in ((), (1,), (2,), (4,), (0,), (1, 3), (3, 1), (2, 3, 1, 4)):
            text = rf"{name}: got shape {re.escape(str(list(shape)))}; allowed: \[3\], one value per channel"
            yield f"{name} {shape}", base.set(name, view_shape=shape), INVALID, text
            masked = base.set(name, view_shape=shape).mask(**{MASK_OF[name]: False})
            yield f"{name} {shape}, masked", masked, 0, ""


def document_rows(base):
    """What only the document demands, and views that leave their storage."""
    for shape in ((2, 3, 1, 5), (1, 3, 1, 4), (2, 3, 4), (2, 4, 1, 4), (0, 3, 1, 4)):
        yield (
            f"gradOut {shape}",
            base.set("gradOut", view_shape=shape),
            INVALID,
            "gradOut: got shape .*; allowed: the shape of",
        )
    for name in ("mean", "invstd", "weight"):
        for shape in ((), (1,), (2,), (5,), (0,), (1, 3), (3, 1)):
            text = rf"{name}: got shape {re.escape(str(list(shape)))}; allowed: \[3\], one value per channel"
            yield f"{name} {shape}", base.set(name, view_shape=shape), INVALID, text
    views = {
        "strides": ({"strides": (-1,)}, "strides: got \\[-1\\]; allowed: strides of 0 or more"),
        "offset": ({"offset": -1}, "offset: got -1; allowed: 0 or more"),
        "far": ({"strides": (2,), "storage_shape": (4,)}, r"view: got .* reaches element 4; allowed: elements 0 to 3"),
        "beyond": ({"offset": 1, "storage_shape": (3,)}, r"view: got .* reaches element 3; allowed: elements 0 to 2"),
        "none": ({"storage_shape": (0,)}, r"view: got .*; allowed: an empty view"),
    }
    for name in ("mean", "invstd", "weight", *OUTPUTS):
        for label, (change, text) in views.items():
            yield f"{name} {label}", base.set(name, **change), INVALID, f"{name}: {text}"
    for name in OUTPUTS:
        text = f"{name}: got stride 0 for 3 channels; allowed: an output without shared elements"
        yield f"{name} stride 0", base.set(name, strides=(0,), storage_shape=(1,)), INVALID, text
    for name in ("gradOut", "input"):
        yield f"{name} broadcast", base.set(name, strides=(0, 0, 0, 0), storage_shape=(1,)), 0, ""


def rows(product):
    base = Call()
    yield "valid", base, 0, ""
    yield from null_rows(base)
    yield from dtype_rows(base, product)
    yield from format_rows(base)
    yield from shape_rows(base)
    yield from document_rows(base)


@pytest.mark.parametrize("product", PRODUCTS)
def test_status_and_message(product):
    table = list(rows(product))
    labels = [label for label, *_ in table]
    assert len(set(labels)) == len(labels) >= 150
    wrong = []
    with acl.Device(product):
        for label, call, code, text in table:
            acl.aclGetRecentErrMsg()
            status, size, executor = call.first_phase()
            message = acl.get_recent_err_msg()
            if code == 0:
                good = status == 0 and not message and executor is not None and size >= 0
            else:
                good = status == code and executor is None and size is None
                prefix = f"aclnnBatchNormReduceBackwardGetWorkspaceSize: {acl.name_of(code)} ({code}): "
                good = good and message.startswith(prefix) and re.match(text, message[len(prefix) :])
            if not good:
                wrong.append(f"{label}: status {status}, expected {code}; {message!r}, expected {text!r}")
    assert not wrong, "\n".join([f"{len(wrong)} of {len(table)}", *wrong[:20]])


LENIENT = {
    "weight int32": (Call().set("weight", dtype="int32"), 0),
    "weight shape": (Call().set("weight", view_shape=(7, 2)), 0),
    "weight private": (Call().set("weight", format="NC1HWC0"), 0),
    "weight outside": (Call().set("weight", offset=9, storage_shape=(1,)), 0),
    "mean rank 2": (Call().set("mean", view_shape=(1, 3)), 0),
    "invstd scalar": (Call((2, 1, 4)).set("invstd", view_shape=()), 0),
    "mean longer": (Call().set("mean", view_shape=(5,)), INNER_NULLPTR),
    "mean empty": (Call().set("mean", view_shape=(0,)), 0),
    "gradOut shape": (Call().set("gradOut", view_shape=(2, 3, 1, 1)), INNER_NULLPTR),
    "output stride 0": (Call().set("sumDy", strides=(0,), storage_shape=(1,)), 0),
    "output outside": (Call().set("sumDy", strides=(2,), storage_shape=(3,)), INVALID),
    "input outside": (Call().set("input", offset=1, storage_shape=(24,)), INVALID),
    "gradOut null": (Call().set("gradOut", null=True), NULLPTR),
}


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("label", LENIENT)
def test_vendor_leniency(product, label):
    call, code = LENIENT[label]
    with acl.Device(product, checks="vendor"):
        status, _, executor = call.first_phase()
        assert status == code, acl.get_recent_err_msg()
        assert (executor is None) == (code != 0)


# Two faults at once: the message is that of the one that is checked first. In the order of the rules.
ORDERED = [
    ("workspaceSize: got None", lambda c: c),
    ("executor: got None", lambda c: c),
    ("gradOut: got None", lambda c: c.set("gradOut", null=True)),
    ("input: got None", lambda c: c.set("input", null=True)),
    ("mean: got None", lambda c: c.set("mean", null=True)),
    ("invstd: got None", lambda c: c.set("invstd", null=True)),
    ("sumDy: got None", lambda c: c.set("sumDy", null=True)),
    ("sumDyXmu: got None", lambda c: c.set("sumDyXmu", null=True)),
    ("gradWeight: got None", lambda c: c.set("gradWeight", null=True)),
    ("gradBias: got None", lambda c: c.set("gradBias", null=True)),
    ("gradOut: got dtype int8", lambda c: c.set("gradOut", dtype="int8")),
    ("input: got dtype int16", lambda c: c.set("input", dtype="int16")),
    ("mean: got dtype int16", lambda c: c.set("mean", dtype="int16")),
    ("invstd: got dtype int16", lambda c: c.set("invstd", dtype="int16")),
    ("gradOut: got dtype float16; allowed: the dtype", lambda c: c.set("gradOut", dtype="float16")),
    ("sumDy: got dtype", lambda c: c.set("sumDy", dtype="int8")),
    ("sumDyXmu: got dtype", lambda c: c.set("sumDyXmu", dtype="int8")),
    ("gradWeight: got dtype", lambda c: c.set("gradWeight", dtype="int8")),
    ("gradBias: got dtype", lambda c: c.set("gradBias", dtype="int8")),
    ("gradOut: got format NCHW; allowed: the format", lambda c: c.set("gradOut", format="NCHW")),
    ("mean: got format", lambda c: c.set("mean", format="NC1HWC0")),
    ("invstd: got format", lambda c: c.set("invstd", format="NC1HWC0")),
    ("sumDy: got format", lambda c: c.set("sumDy", format="NC1HWC0")),
    ("gradBias: got format", lambda c: c.set("gradBias", format="NC1HWC0")),
    ("gradOut: got rank 9", lambda c: c.set("gradOut", view_shape=(2, 3, 1, 4, 1, 1, 1, 1, 1))),
    ("input: got rank 1", lambda c: c.set("input", view_shape=(3,))),
    ("input: got shape", lambda c: c.set("input", view_shape=(2, 0))),
    ("sumDy: got shape", lambda c: c.set("sumDy", view_shape=(9,))),
    ("gradBias: got shape", lambda c: c.set("gradBias", view_shape=(9,))),
    ("sumDyXmu: strides: got", lambda c: c.set("sumDyXmu", strides=(-2,))),
    ("gradWeight: got stride 0", lambda c: c.set("gradWeight", strides=(0,), storage_shape=(1,))),
    ("gradOut: got shape", lambda c: c.set("gradOut", view_shape=(2, 3, 1, 5))),
    ("weight: got dtype", lambda c: c.set("weight", dtype="int8")),
    ("mean: got shape", lambda c: c.set("mean", view_shape=(4,))),
    ("weight: got shape", lambda c: c.set("weight", view_shape=(4,))),
]


def clash(first, second):
    """Faults that change the same value of one tensor, or need it to exist, cannot be combined."""
    before = Call()
    one, two = first(Call()), second(Call())
    for name in before.tensors:
        a, b, c = one.tensors[name], two.tensors[name], before.tensors[name]
        if a != c and b != c:
            if a is None or b is None:
                return True
            if {k for k in a if a[k] != c.get(k)} & {k for k in b if b[k] != c.get(k)}:
                return True
    return False


@pytest.mark.parametrize("product", PRODUCTS)
def test_the_earlier_fault_is_reported(product):
    wrong, tried = [], 0
    with acl.Device(product):
        for i, (text, first) in enumerate(ORDERED):
            for later, second in ORDERED[i + 1 :]:
                if i > 1 and clash(first, second):
                    continue
                call, tried = second(first(Call())), tried + 1
                outs = {n: None for n in ("workspaceSize", "executor") if any(t.startswith(n) for t in (text, later))}
                aclnn.aclnnBatchNormReduceBackwardGetWorkspaceSize(**call.make(), **call.masks, **outs)
                message = acl.get_recent_err_msg()
                if f"): {text}" not in message:
                    wrong.append(f"{text} and {later}: {message}")
    assert tried > 300
    assert not wrong, "\n".join([f"{len(wrong)} of {tried}", *wrong[:10]])
