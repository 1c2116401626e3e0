"""Global memory: addresses, names, dtypes; the UB's poison."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator import EmulatorError, GlobalMemory
from emulator.memory import DEVICE_DTYPES, GM_ALIGN_BYTES, unified_buffer


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=12))
def test_allocations_are_aligned_and_disjoint(counts):
    memory = GlobalMemory()
    end = 1
    for i, count in enumerate(counts):
        tensor = memory.alloc(f"t{i}", count, np.dtype(DEVICE_DTYPES[i % 3]))
        assert tensor.address % GM_ALIGN_BYTES == 0 and tensor.address >= end
        assert (tensor.count, tensor.itemsize) == (count, (4, 2, 2)[i % 3])
        end = tensor.address + max(count * tensor.itemsize, 1)


@pytest.mark.jitless
def test_a_bound_array_is_shared_not_copied():
    memory = GlobalMemory()
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    tensor = memory.bind("x", array)
    assert tensor.host == array.ctypes.data and tensor.count == 12
    memory["x"][5] = 99
    assert array[1, 1] == 99 and memory["x"].shape == (12,)


@pytest.mark.jitless
@pytest.mark.parametrize("dtype", DEVICE_DTYPES)
def test_a_new_allocation_is_poisoned(dtype):
    memory = GlobalMemory()
    memory.alloc("x", 9, np.dtype(dtype))
    assert memory["x"].dtype == dtype and (memory["x"].view(np.uint8) == 0xFF).all()


def test_names_must_be_new():
    memory = GlobalMemory()
    memory.alloc("x", 1)
    with pytest.raises(EmulatorError, match="global memory: 'x' is allocated already; choose another name"):
        memory.alloc("x", 1)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(4, np.float64),
        np.zeros(4, np.float16),
        np.zeros(4, ml_dtypes.bfloat16),
        np.zeros((4, 4), np.float32)[:, ::2],
        np.zeros((3, 4), np.float32).T,
    ],
    ids=["float64", "float16", "bfloat16", "strided", "transposed"],
)
def test_only_contiguous_device_dtypes(array):
    with pytest.raises(EmulatorError, match=f"global memory: x: got {array.dtype}, .*allowed: contiguous arrays of"):
        GlobalMemory().bind("x", array)


@pytest.mark.jitless
def test_the_poison_is_nan_in_every_format():
    ub = unified_buffer(64)
    with np.errstate(invalid="ignore"):
        for dtype in (np.float32, np.float16, ml_dtypes.bfloat16):
            assert np.isnan(ub.view(dtype).astype(np.float32)).all()
