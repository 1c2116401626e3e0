"""Operands read back from every container with the bits they were written with, and each error's text."""

import errno
import os
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from emulator.errors import EmulatorError
from ops.operands import OperandError, bundled, bundled_names, load

DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
CONTAINERS = ("npz", "folder", "safetensors")
FORMS = "allowed: a .npz file, a folder of .npy files, a .safetensors file"


def make(io_dtype="float32", weight=True):
    rng = np.random.default_rng(3)
    dtype = DTYPES[io_dtype]
    arrays = {
        "grad_out": rng.standard_normal((4, 3, 2)).astype(dtype),
        "input": rng.standard_normal((4, 3, 2)).astype(dtype),
        "mean": rng.standard_normal(3).astype(np.float32),
        "invstd": rng.random(3).astype(np.float32),
    }
    arrays["grad_out"].reshape(-1)[:3] = [np.nan, -0.0, np.inf]
    if weight:
        arrays["weight"] = rng.standard_normal(3).astype(np.float32)
    return arrays


def write(container, folder, arrays, **notes):
    """Write a dump; outside safetensors bf16 goes in as its bit pattern."""
    if container == "safetensors":
        path = folder / "dump.safetensors"
        save_file(arrays, path, metadata={key: str(value) for key, value in notes.items()})
        return path
    stored = {
        key: array.view(np.uint16) if array.dtype == ml_dtypes.bfloat16 else array for key, array in arrays.items()
    } | {key: np.asarray(value) for key, value in notes.items()}
    if container == "npz":
        path = folder / "dump.npz"
        np.savez_compressed(path, **stored)
        return path
    path = folder / "dump"
    path.mkdir()
    for key, array in stored.items():
        np.save(path / f"{key}.npy", array)
    return path


def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def refused(path):
    """The error's text without the path: one line that names the path."""
    with pytest.raises(OperandError) as caught:
        load(path)
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith(f"operands {path}: ")
    return text.removeprefix(f"operands {path}: ")


# Round trips


@pytest.mark.parametrize("io_dtype", DTYPES)
@pytest.mark.parametrize("container", CONTAINERS)
def test_round_trip(tmp_path, container, io_dtype):
    arrays = make(io_dtype)
    path = write(container, tmp_path, arrays, io_dtype=io_dtype, loss_scale=1024.0)
    read = load(path)
    for key, array in arrays.items():
        assert same_bits(getattr(read, key), array), key
    assert read.name == "dump"
    assert read.path == path
    assert read.notes == {"io_dtype": io_dtype, "loss_scale": 1024.0}


@pytest.mark.parametrize("container", CONTAINERS)
def test_weight_and_notes_are_optional(tmp_path, container):
    read = load(write(container, tmp_path, make(weight=False)))
    assert read.weight is None
    assert read.notes == {}


def test_all_operands_may_be_bf16(tmp_path):
    arrays = {key: array.astype(ml_dtypes.bfloat16) for key, array in make("bfloat16").items()}
    read = load(write("npz", tmp_path, arrays, io_dtype="bfloat16"))
    for key, array in arrays.items():
        assert same_bits(getattr(read, key), array), key


def test_bf16_written_by_numpy_itself(tmp_path):
    arrays = make("bfloat16")
    np.savez(tmp_path / "raw.npz", **arrays, io_dtype="bfloat16")  # NumPy stores the raw type V2
    assert same_bits(load(tmp_path / "raw.npz").input, arrays["input"])


@pytest.mark.parametrize("container", CONTAINERS)
def test_vendor_spelling(tmp_path, container):
    arrays = make()
    vendor = {"gradOut" if key == "grad_out" else key: array for key, array in arrays.items()}
    assert same_bits(load(write(container, tmp_path, vendor)).grad_out, arrays["grad_out"])


@pytest.mark.parametrize("container", CONTAINERS)
def test_other_keys_are_left_alone(tmp_path, container):
    arrays = make() | {"running_mean": np.zeros(3, np.float64)}
    assert load(write(container, tmp_path, arrays)).mean.shape == (3,)


def test_other_keys_are_not_even_read(tmp_path):
    np.savez(tmp_path / "dump.npz", **make(), config=np.array([{"a": 1}], dtype=object))
    assert load(tmp_path / "dump.npz").notes == {}


def test_notes_of_a_folder_as_text(tmp_path):
    path = write("folder", tmp_path, make("bfloat16"))
    (path / "io_dtype.txt").write_text("bfloat16\n")
    (path / "loss_scale.txt").write_text("512")
    read = load(path)
    assert read.input.dtype == ml_dtypes.bfloat16
    assert read.notes == {"io_dtype": "bfloat16", "loss_scale": 512.0}


def test_byte_and_memory_order_are_made_native(tmp_path):
    arrays = make()
    foreign = {key: np.asfortranarray(array.astype(array.dtype.newbyteorder(">"))) for key, array in arrays.items()}
    read = load(write("npz", tmp_path, foreign))
    assert same_bits(read.input, arrays["input"])
    assert read.input.flags.c_contiguous
    assert read.input.dtype.isnative


def test_ranks_and_lengths_are_not_the_loaders_business(tmp_path):
    arrays = make() | {"mean": np.float32(1).reshape(()), "input": np.zeros((0, 3), np.float32)}
    read = load(write("npz", tmp_path, arrays))
    assert read.mean.shape == ()
    assert read.input.shape == (0, 3)


def test_text_paths_and_capital_suffixes(tmp_path):
    path = write("npz", tmp_path, make()).rename(tmp_path / "DUMP.NPZ")
    assert load(str(path)).path == path


# Bundled dumps


def test_bundled_dumps():
    assert bundled_names() == ("digits_cnn_bn_fp16", "digits_mlp_bn_fp32")
    cnn, mlp = bundled(), bundled("digits_mlp_bn_fp32")
    assert (cnn.name, cnn.input.shape, cnn.input.dtype) == ("digits_cnn_bn_fp16", (64, 16, 8, 8), np.float16)
    assert (mlp.name, mlp.input.shape, mlp.input.dtype) == ("digits_mlp_bn_fp32", (256, 64), np.float32)
    assert cnn.notes == {"io_dtype": "float16", "loss_scale": 1024.0}
    for dump in (cnn, mlp):
        axes = tuple(axis for axis in range(dump.input.ndim) if axis != 1)
        exact = dump.input.astype(np.float64)
        assert dump.grad_out.shape == dump.input.shape
        assert dump.grad_out.dtype == dump.input.dtype
        assert np.isfinite(dump.grad_out).all() and dump.grad_out.any()
        np.testing.assert_allclose(dump.mean, exact.mean(axes), rtol=1e-6)
        np.testing.assert_allclose(dump.invstd, 1 / np.sqrt(exact.var(axes) + 1e-5), rtol=1e-6)
        assert dump.mean.dtype == dump.invstd.dtype == dump.weight.dtype == np.float32


def test_bundled_name_that_is_not_there():
    with pytest.raises(OperandError) as caught:
        bundled("mnist")
    assert str(caught.value) == (
        "bundled operands: got 'mnist'; allowed: digits_cnn_bn_fp16, digits_mlp_bn_fp32; "
        "choose one, or load a file by its path"
    )


# Errors


def test_the_error_is_one_of_ours():
    assert issubclass(OperandError, EmulatorError)
    assert issubclass(OperandError, ValueError)


@pytest.mark.parametrize("name", ["nowhere.npz", "nowhere", "nowhere.safetensors"])
def test_missing_file(tmp_path, name):
    assert refused(tmp_path / name) == f"got 'no such file or folder'; {FORMS}; check the path"


def test_other_kind_of_file(tmp_path):
    path = tmp_path / "dump.pt"
    path.write_bytes(b"x")
    assert refused(path) == f"file type: got '.pt'; {FORMS}; save it as one of these"


@pytest.mark.parametrize("container", CONTAINERS)
def test_missing_key(tmp_path, container):
    arrays = make()
    arrays["gradient"] = arrays.pop("grad_out")
    del arrays["mean"]
    assert refused(write(container, tmp_path, arrays)) == (
        "missing grad_out, mean: got gradient, input, invstd, weight; "
        "allowed: grad_out, input, mean, invstd, optionally weight; add what is missing under that name"
    )


def test_folder_without_arrays(tmp_path):
    (tmp_path / "notes.md").write_text("nothing here")
    assert refused(tmp_path) == (
        "missing grad_out, input, mean, invstd: got no arrays; "
        "allowed: grad_out, input, mean, invstd, optionally weight; add what is missing under that name"
    )


@pytest.mark.parametrize("container", CONTAINERS)
def test_both_spellings(tmp_path, container):
    arrays = make()
    path = write(container, tmp_path, arrays | {"gradOut": arrays["grad_out"]})
    assert refused(path) == "grad_out: got ['grad_out', 'gradOut']; allowed: one spelling; keep one of them"


def test_truncated_npz(tmp_path):
    path = write("npz", tmp_path, make())
    path.write_bytes(path.read_bytes()[:300])
    assert refused(path) == (
        "got 'a truncated or damaged .npz file of 300 bytes'; allowed: a complete .npz file; "
        "write it again with np.savez_compressed, or copy it again"
    )


@pytest.mark.parametrize("content", [b"", b"grad_out,input\n1,2\n", b"\x93NUMPY\x01\x00"])
def test_file_that_is_not_npz(tmp_path, content):
    path = tmp_path / "dump.npz"
    path.write_bytes(content)
    assert refused(path) == (
        f"got 'a file that is not .npz of {len(content)} bytes'; allowed: a complete .npz file; "
        "write it again with np.savez_compressed, or copy it again"
    )


def test_damaged_member(tmp_path):
    path = tmp_path / "dump.npz"
    np.savez(path, **make())
    data = bytearray(path.read_bytes())
    data[200] ^= 0xFF  # inside the values of grad_out
    path.write_bytes(data)
    assert refused(path) == (
        "grad_out not read (Bad CRC-32 for file 'grad_out.npy'): got 'a truncated or damaged array'; "
        "allowed: a complete .npy array; write it again with np.savez_compressed, or copy it again"
    )


def test_every_damaged_byte_and_every_cut_is_refused_or_harmless(tmp_path):
    whole = write("npz", tmp_path, make()).read_bytes()
    path = tmp_path / "hurt.npz"
    rng = np.random.default_rng(0)
    hurt = [whole[:length] for length in range(0, len(whole), 7)]
    for position in rng.integers(0, len(whole), 200):
        hurt.append(whole[:position] + bytes([whole[position] ^ 0xFF]) + whole[position + 1 :])
    for content in hurt:
        path.write_bytes(content)
        try:
            load(path)
        except OperandError as error:
            assert "\n" not in str(error)


def test_member_that_is_no_array(tmp_path):
    path = tmp_path / "dump.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for key in make():
            archive.writestr(f"{key}.npy", b"plain text")
    assert refused(path).startswith("grad_out not read (the magic string is not correct")


def test_truncated_npy(tmp_path):
    path = write("folder", tmp_path, make())
    (path / "mean.npy").write_bytes((path / "mean.npy").read_bytes()[:-5])
    text = refused(path)
    assert text.startswith("mean.npy not read (")
    assert text.endswith(
        "): got 'a truncated or damaged array'; allowed: a complete .npy array; write it again with np.save"
    )


@pytest.mark.parametrize("keep", [0, 5, 100, -4])
def test_truncated_safetensors(tmp_path, keep):
    path = write("safetensors", tmp_path, make())
    path.write_bytes(path.read_bytes()[:keep])
    text = refused(path)
    assert text.startswith("not read as .safetensors (")
    assert text.endswith(
        f"): got 'a file of {path.stat().st_size} bytes'; allowed: a complete .safetensors file; "
        "write it again with safetensors.numpy.save_file, or copy it again"
    )


class Trap:
    """Unpickling it would make a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("container", ["npz", "folder"])
def test_pickles_are_never_loaded(tmp_path, container):
    sprung = tmp_path / "sprung"
    path = write(container, tmp_path, make() | {"input": np.array([Trap(sprung)], dtype=object)})
    key = "input" if container == "npz" else "input.npy"
    assert refused(path) == (
        f"{key}: got 'pickled Python objects, which are never loaded'; "
        "allowed: float32, float16, bfloat16; save it as a plain array"
    )
    assert not sprung.exists()


ALLOWED_DTYPES = "allowed: float32, float16 and bfloat16 (as uint16 with io_dtype, or as BF16 in .safetensors)"


@pytest.mark.parametrize("key", ["grad_out", "input", "mean", "invstd", "weight"])
@pytest.mark.parametrize("dtype", ["float64", "int32", "uint8", "bool", "complex64"])
def test_dtype_is_refused_not_converted(tmp_path, key, dtype):
    arrays = make()
    path = write("npz", tmp_path, arrays | {key: np.ones(arrays[key].shape, dtype)})
    assert refused(path) == f"dtype of {key}: got '{dtype}'; {ALLOWED_DTYPES}; convert it before saving"


def test_dtype_of_safetensors(tmp_path):
    path = write("safetensors", tmp_path, make() | {"mean": np.ones(3)})
    assert refused(path) == f"dtype of mean: got 'F64'; {ALLOWED_DTYPES}; convert it before saving"


def test_bit_patterns_without_io_dtype(tmp_path):
    path = write("npz", tmp_path, make("bfloat16"))
    assert refused(path) == (
        f"dtype of grad_out: got 'uint16'; {ALLOWED_DTYPES}; for bf16 bit patterns also store io_dtype = 'bfloat16'"
    )


@pytest.mark.parametrize("container", CONTAINERS)
def test_io_dtype_that_the_arrays_contradict(tmp_path, container):
    path = write(container, tmp_path, make("float32"), io_dtype="bfloat16")
    assert refused(path) == (
        "dtype of grad_out: got 'float32'; allowed: bfloat16, which io_dtype says; "
        "store grad_out in that dtype or correct io_dtype"
    )


@pytest.mark.parametrize(
    ("value", "shown"), [("bf16", "'bf16'"), (3, "3"), (["float16"] * 2, "['float16', 'float16']")]
)
def test_unknown_io_dtype(tmp_path, value, shown):
    assert refused(write("npz", tmp_path, make(), io_dtype=value)) == (
        f"io_dtype: got {shown}; allowed: float32, float16, bfloat16; store one of these names"
    )


@pytest.mark.parametrize(("value", "shown"), [("big", "'big'"), ([1.0, 2.0], "[1.0, 2.0]")])
def test_loss_scale_that_is_no_number(tmp_path, value, shown):
    assert refused(write("npz", tmp_path, make(), loss_scale=value)) == (
        f"loss_scale: got {shown}; allowed: one number; store a number or leave it out"
    )


def test_file_that_may_not_be_read(tmp_path, monkeypatch):
    path = write("npz", tmp_path, make())

    def deny(*_args):  # root may read everything, so the system's answer is played here
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(zipfile, "ZipFile", deny)
    assert refused(path) == "got 'Permission denied'; allowed: a readable file; change its mode"


def test_what_is_no_regular_file(tmp_path):
    """A pipe or device is refused at once: reading it might never end."""
    os.mkfifo(tmp_path / "pipe.npz")
    (tmp_path / "zero.npz").symlink_to("/dev/zero")
    for name in ("pipe.npz", "zero.npz"):
        with pytest.raises(OperandError, match=r"a pipe, socket or device.*allowed: a regular file"):
            load(tmp_path / name)
