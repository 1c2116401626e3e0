"""The operator's operands as files: ``.npz``, a folder of ``.npy`` files, or ``.safetensors``.

All three hold the keys ``grad_out`` (or the vendor's ``gradOut``), ``input``, ``mean``, ``invstd`` and, if
there is one, ``weight``. Other keys are left alone, except two that describe the dump and are kept in
`Operands.notes`: ``io_dtype`` and ``loss_scale``.

bf16 has no NumPy dtype of its own. In ``.npz`` and ``.npy`` it is stored as its bit pattern, ``uint16``, and
``io_dtype`` says ``bfloat16``; in ``.safetensors`` it is the format's own BF16. In memory it is always
``ml_dtypes.bfloat16``. Nothing is converted: an array keeps the dtype it was stored in, or is refused.

Only the files are checked here. Ranks, shapes and what a product can compute are the operator's checks.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import IO, Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import safetensors

from emulator.errors import EmulatorError, explain

REQUIRED_KEYS = ("grad_out", "input", "mean", "invstd")
OPTIONAL_KEYS = ("weight",)
NOTE_KEYS = ("io_dtype", "loss_scale")
SPELLINGS: Mapping[str, tuple[str, ...]] = {"grad_out": ("grad_out", "gradOut")}
"""Keys that may be spelled in more than one way."""

DTYPES: Mapping[str, np.dtype[Any]] = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}
"""Dtypes an operand can have, by the name that ``io_dtype`` uses."""

DEFAULT_BUNDLED = "digits_cnn_bn_fp16"

_FORMS = "a .npz file, a folder of .npy files, a .safetensors file"
_SAFETENSORS_DTYPES = ("F32", "F16", "BF16", "U16")
_READ_ERRORS = (
    ValueError,
    EOFError,
    OSError,
    MemoryError,
    OverflowError,
    NotImplementedError,  # a compression method that zipfile does not know
    RuntimeError,  # an encrypted member
    zipfile.BadZipFile,
    zlib.error,
)

Array = npt.NDArray[Any]


class OperandError(EmulatorError):
    """A file of operands cannot be read as such; the message is one line that names what, got and allowed."""


@dataclass(frozen=True, eq=False)
class Operands:
    """The arrays of one batch-norm reduction, as they were stored.

    Attributes:
        grad_out: gradient with respect to the batch norm's output, (N, C, ...).
        input: the batch norm's input, (N, C, ...).
        mean: mean of each channel over the batch, (C,).
        invstd: ``1 / sqrt(variance + eps)`` of each channel, (C,).
        weight: the batch norm's weight, (C,), or None when the file has none.
        name: name of the file without its ending.
        path: the file or folder the operands were read from; None for operands made in memory.
        notes: what the file says about itself: ``io_dtype`` (str), ``loss_scale`` (float).

    The arrays are C-contiguous, in native byte order, and float32, float16 or ``ml_dtypes.bfloat16``.
    """

    grad_out: Array
    input: Array
    mean: Array
    invstd: Array
    weight: Array | None
    name: str
    path: Path | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)


def load(path: str | Path) -> Operands:
    """Read operands from a ``.npz`` file, a folder of ``.npy`` files or a ``.safetensors`` file.

    In a folder each key is a file, ``grad_out.npy`` and so on; a note may also be text, ``io_dtype.txt``.

    Raises:
        OperandError: nothing is there, it is none of the three, it is damaged, a key is missing or spelled
            twice, an array holds Python objects, or an array is not float32, float16 or bfloat16.
    """
    path = Path(path)
    try:
        if path.is_dir():
            return _load_folder(path)
        if not path.exists():
            raise _error(path, got="no such file or folder", allowed=_FORMS, remedy="check the path")
        loaders = {".npz": _load_npz, ".safetensors": _load_safetensors}
        if not path.is_file():
            got = "a pipe, socket or device"
            raise _error(path, got=got, allowed="a regular file or a folder", remedy="copy the data to a file")
        loader = loaders.get(path.suffix.lower())
        if loader is None:
            raise _error(path, "file type", got=path.suffix, allowed=_FORMS, remedy="save it as one of these")
        return loader(path)
    except PermissionError as error:
        raise _error(
            path,
            got=error.strerror or "permission denied",
            allowed="a readable file",
            remedy="change its mode",
        ) from error


def bundled_names() -> tuple[str, ...]:
    """Names of the dumps that come with the package, sorted."""
    entries = (Path(entry.name) for entry in _bundle().iterdir())
    return tuple(sorted(entry.stem for entry in entries if entry.suffix == ".npz"))


def bundled(name: str = DEFAULT_BUNDLED) -> Operands:
    """Operands that come with the package; ``ops/data/README.md`` says how each was captured.

    Raises:
        OperandError: there is no bundled dump of that name.
    """
    names = bundled_names()
    if name not in names:
        text = explain(
            "bundled operands",
            got=name,
            allowed=", ".join(names),
            remedy="choose one, or load a file by its path",
        )
        raise OperandError(text)
    with resources.as_file(_bundle() / f"{name}.npz") as path:
        return load(path)


def _bundle() -> Any:
    return resources.files("ops") / "data"


def _load_npz(path: Path) -> Operands:
    remedy = "write it again with np.savez_compressed, or copy it again"
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        if isinstance(error, PermissionError):
            raise
        with path.open("rb") as stream:
            started = stream.read(2) == b"PK"
        kind = "a truncated or damaged .npz file" if started else "a file that is not .npz"
        got = f"{kind} of {path.stat().st_size} bytes"
        raise _error(path, got=got, allowed="a complete .npz file", remedy=remedy) from error
    with archive:
        keys = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]

        def read(key: str) -> Array:
            try:
                with archive.open(f"{key}.npy") as stream:
                    return _read_npy(stream)
            except _READ_ERRORS as error:
                raise _unreadable(path, key, error, remedy) from error

        return _collect(path, path.stem, keys, read)


def _load_folder(path: Path) -> Operands:
    keys = [entry.stem for entry in sorted(path.glob("*.npy"))]
    texts = [key for key in NOTE_KEYS if key not in keys and (path / f"{key}.txt").is_file()]

    def read(key: str) -> Array:
        if key in texts:
            return np.array((path / f"{key}.txt").read_text(encoding="utf-8", errors="replace").strip())
        try:
            with (path / f"{key}.npy").open("rb") as stream:
                return _read_npy(stream)
        except PermissionError:
            raise
        except _READ_ERRORS as error:
            raise _unreadable(path, f"{key}.npy", error, "write it again with np.save") from error

    return _collect(path, path.resolve().name, keys + texts, read)


def _load_safetensors(path: Path) -> Operands:
    remedy = "write it again with safetensors.numpy.save_file, or copy it again"
    try:
        archive: Any = safetensors.safe_open(path, framework="np")
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        if isinstance(error, PermissionError):
            raise
        raise _error(
            path,
            f"not read as .safetensors ({_first_line(error)})",
            got=f"a file of {path.stat().st_size} bytes",
            allowed="a complete .safetensors file",
            remedy=remedy,
        ) from error
    with archive:
        metadata = {key: text for key, text in (archive.metadata() or {}).items() if key in NOTE_KEYS}
        tensors = list(archive.keys())

        def read(key: str) -> Array:
            if key not in tensors:
                return np.array(metadata[key])
            stored = archive.get_slice(key).get_dtype()
            if stored not in _SAFETENSORS_DTYPES and key not in NOTE_KEYS:
                raise _bad_dtype(path, key, stored)
            return np.asarray(archive.get_tensor(key))

        return _collect(path, path.stem, tensors + [key for key in metadata if key not in tensors], read)


def _read_npy(stream: IO[bytes]) -> Array:
    """One array in ``.npy`` form; pickles are refused."""
    return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))


def _collect(path: Path, name: str, keys: Collection[str], read: Callable[[str], Array]) -> Operands:
    """Pick the operands among ``keys``, reading nothing that is not asked for."""
    found = {key: _spelled(path, key, keys) for key in REQUIRED_KEYS + OPTIONAL_KEYS}
    missing = [key for key in REQUIRED_KEYS if found[key] is None]
    if missing:
        there = ", ".join(sorted(keys)) or "no arrays"
        raise OperandError(
            f"operands {path}: missing {', '.join(missing)}: got {there}; "
            f"allowed: {', '.join(REQUIRED_KEYS)}, optionally weight; add what is missing under that name"
        )
    notes: dict[str, Any] = {key: _note(path, key, read(key)) for key in NOTE_KEYS if key in keys}
    io_dtype: str | None = notes.get("io_dtype")
    arrays = {
        key: _operand(path, key, read(spelling), io_dtype) for key, spelling in found.items() if spelling is not None
    }
    return Operands(
        grad_out=arrays["grad_out"],
        input=arrays["input"],
        mean=arrays["mean"],
        invstd=arrays["invstd"],
        weight=arrays.get("weight"),
        name=name,
        path=path,
        notes=notes,
    )


def _spelled(path: Path, key: str, keys: Collection[str]) -> str | None:
    """The spelling under which ``key`` is there, or None."""
    there = [spelling for spelling in SPELLINGS.get(key, (key,)) if spelling in keys]
    if len(there) > 1:
        raise _error(path, key, got=there, allowed="one spelling", remedy="keep one of them")
    return there[0] if there else None


def _note(path: Path, key: str, stored: Array) -> str | float:
    """The value of ``io_dtype`` (str) or ``loss_scale`` (float)."""
    value = stored.item() if stored.size == 1 else stored.tolist()
    if key == "io_dtype":
        text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        if isinstance(text, str) and text in DTYPES:
            return text
        raise _error(path, key, got=text, allowed=", ".join(DTYPES), remedy="store one of these names")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise _error(path, key, got=value, allowed="one number", remedy="store a number or leave it out") from None


def _operand(path: Path, key: str, stored: Array, io_dtype: str | None) -> Array:
    """The stored array as an operand: bit patterns viewed as bf16, dtype checked, values untouched."""
    array = np.asarray(stored.astype(stored.dtype.newbyteorder("="), copy=False), order="C")
    bf16 = DTYPES["bfloat16"]
    # NumPy writes an ml_dtypes array as the raw two-byte type V2.
    if io_dtype == "bfloat16" and array.dtype in (np.dtype(np.uint16), np.dtype("V2")):
        array = array.view(bf16)
    if array.dtype not in DTYPES.values():
        raise _bad_dtype(path, key, str(stored.dtype))
    if key in ("grad_out", "input") and io_dtype is not None and array.dtype != DTYPES[io_dtype]:
        raise _error(
            path,
            f"dtype of {key}",
            got=str(array.dtype),
            allowed=f"{io_dtype}, which io_dtype says",
            remedy=f"store {key} in that dtype or correct io_dtype",
        )
    return array


def _error(path: Path, what: str = "", *, got: object, allowed: str, remedy: str) -> OperandError:
    place = f"operands {path}: {what}" if what else f"operands {path}"
    return OperandError(explain(place, got=got, allowed=allowed, remedy=remedy))


def _bad_dtype(path: Path, key: str, got: str) -> OperandError:
    allowed = "float32, float16 and bfloat16 (as uint16 with io_dtype, or as BF16 in .safetensors)"
    bits = got in ("uint16", "U16", "|V2")
    remedy = "for bf16 bit patterns also store io_dtype = 'bfloat16'" if bits else "convert it before saving"
    return _error(path, f"dtype of {key}", got=got, allowed=allowed, remedy=remedy)


def _unreadable(path: Path, key: str, error: BaseException, remedy: str) -> OperandError:
    if "Object arrays" in str(error):
        got, allowed = "pickled Python objects, which are never loaded", ", ".join(DTYPES)
        return _error(path, key, got=got, allowed=allowed, remedy="save it as a plain array")
    what, got = f"{key} not read ({_first_line(error)})", "a truncated or damaged array"
    return _error(path, what, got=got, allowed="a complete .npy array", remedy=remedy)


def _first_line(error: BaseException) -> str:
    """The first line of an error's text, or its type when it has none."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
