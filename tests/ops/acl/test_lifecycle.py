"""Call order, handles, memory: what the runtime refuses and with which code."""

import ctypes
import threading

import numpy as np
import pytest
from acl_calls import Call, bits, second_phase

from ops import acl, aclnn
from ops.acl.heap import CANARY
from ops.acl.state import runtime

H2D, D2H, D2D, H2H, DEFAULT = 1, 2, 3, 0, 4
OPERATOR = "aclnnBatchNormReduceBackward"


@pytest.fixture
def opened():
    assert acl.aclInit(None) == 0
    assert acl.aclrtSetDevice(0) == 0


def message():
    return acl.aclGetRecentErrMsg()


def test_nothing_works_before_init(monkeypatch):
    monkeypatch.setattr(runtime, "finalized", False)
    calls = [
        (acl.aclrtSetDevice, 0), (acl.aclrtResetDevice, 0), (acl.aclrtGetDevice,), (acl.aclrtGetDeviceCount,),
        (acl.aclrtCreateStream,), (acl.aclrtDestroyStream, 1), (acl.aclrtSynchronizeStream, None),
        (acl.aclrtSynchronizeDevice,), (acl.aclrtCreateContext, 0), (acl.aclrtDestroyContext, 1),
        (acl.aclrtSetCurrentContext, 1), (acl.aclrtGetCurrentContext,), (acl.aclrtMalloc, 8, 0), (acl.aclrtFree, 8),
        (acl.aclrtMallocHost, 8), (acl.aclrtFreeHost, 8), (acl.aclrtMemset, 8, 8, 0, 8),
        (acl.aclrtMemcpy, 8, 8, 8, 8, 0), (acl.aclrtSetDeviceSatMode, 0), (acl.aclrtGetDeviceSatMode,),
        (acl.aclrtGetMemInfo, 0), (acl.aclrtGetRunMode,), (acl.aclFinalize,),
    ]  # fmt: skip
    for f, *args in calls:
        result = f(*args)
        status = result[0] if isinstance(result, tuple) else result
        assert status == acl.AclError.ACL_ERROR_UNINITIALIZE, f.__name__
        assert "aclInit" in message(), f.__name__
    assert Call.first_phase(Call(), dict.fromkeys(Call().tensors))[0] == 361001
    assert "100001" in message()


def test_init_and_finalize_once():
    assert acl.aclInit() == 0
    assert acl.aclInit() == 100002
    assert acl.aclFinalize() == 0
    assert acl.aclFinalize() == 100037
    assert acl.aclInit() == 0, "a new aclInit after aclFinalize is fine"
    assert acl.aclFinalize() == 0


def test_init_reads_its_file(tmp_path):
    assert acl.aclInit(str(tmp_path / "none.json")) == 100003
    (tmp_path / "bad.json").write_text("{")
    assert acl.aclInit(str(tmp_path / "bad.json")) == 100006
    (tmp_path / "good.json").write_text("{}")
    assert acl.aclInit(str(tmp_path / "good.json")) == 0


def test_devices(monkeypatch):
    assert acl.aclInit() == 0
    assert acl.aclrtGetDevice() == (107002, None)
    assert acl.aclrtGetDeviceCount() == (0, 1)
    for bad in (1, -1, 2**31, None, "0", 0.0, True):
        assert acl.aclrtSetDevice(bad) == 107001, bad
    assert "deviceId: got True; allowed: 0" in message()
    assert acl.aclrtResetDevice(0) == 107002
    monkeypatch.setenv("AICORE_PRODUCT", "Ascend911")
    assert acl.aclrtSetDevice(0) == 507008
    assert "AICORE_PRODUCT" in message() and acl.aclrtGetSocName() is None
    monkeypatch.setenv("AICORE_PRODUCT", "910B3")
    assert acl.aclrtGetSocName() == "Ascend910B3"
    assert acl.aclrtSetDevice(0) == 0 == acl.aclrtSetDevice(0)
    assert acl.aclrtGetDevice() == (0, 0)
    monkeypatch.setenv("AICORE_PRODUCT", "910A")
    assert acl.aclrtGetSocName() == "Ascend910B3", "a device that is open keeps its product"
    assert acl.aclrtResetDevice(0) == 0
    assert acl.aclrtGetDevice() == (0, 0), "two aclrtSetDevice need two aclrtResetDevice"
    assert acl.aclrtResetDevice(0) == 0
    assert acl.aclrtGetDevice()[0] == 107002
    monkeypatch.setenv("AICORE_ENGINE", "slow")
    assert acl.aclrtSetDevice(0) == 507008 and "engine" in message()


def test_contexts_and_streams(opened):
    _, primary = acl.aclrtGetCurrentContext()
    status, other = acl.aclrtCreateContext(0)
    assert status == 0 and acl.aclrtGetCurrentContext() == (0, other)
    status, stream = acl.aclrtCreateStream()
    assert status == 0 and int(stream) != int(other) != 0
    assert acl.aclrtSynchronizeStream(int(stream)) == 0, "handles are integers to C"
    assert acl.aclrtSetCurrentContext(primary) == 0
    assert acl.aclrtSynchronizeStream(stream) == 107003
    assert acl.aclrtDestroyStream(stream) == 107003
    assert acl.aclrtDestroyContext(primary) == 107000
    assert acl.aclrtDestroyContext(None) == 100000 == acl.aclrtSetCurrentContext(0) == acl.aclrtDestroyStream(None)
    assert acl.aclrtDestroyContext(other) == 0
    assert acl.aclrtSetCurrentContext(other) == 107000
    assert acl.aclrtSynchronizeStream(stream) == 107000
    assert "destroyed with its context" in message()
    assert acl.aclrtSynchronizeStream(primary) == 107000
    assert "stream: got context" in message()
    assert acl.aclrtSynchronizeStream(12345) == 107000
    status, stream = acl.aclrtCreateStreamWithConfig(0, 1)
    assert acl.aclrtSynchronizeStreamWithTimeout(stream, -2) == 100000
    assert acl.aclrtSynchronizeStreamWithTimeout(stream, -1) == 0
    assert acl.aclrtDestroyStream(stream) == 0
    assert acl.aclrtDestroyStreamForce(stream) == 107000
    assert acl.aclrtSynchronizeDevice() == 0
    default = primary.default_stream
    assert acl.aclrtSynchronizeStream(None) == 0 == acl.aclrtSynchronizeStream(default)
    assert acl.aclrtDestroyStream(default) == 107000


def test_a_context_belongs_to_its_thread(opened):
    seen = []
    thread = threading.Thread(target=lambda: seen.append((acl.aclrtGetDevice(), acl.get_recent_err_msg())))
    thread.start()
    thread.join()
    assert seen[0][0] == (107002, None) and "aclrtSetDevice" in seen[0][1]
    assert acl.get_recent_err_msg() == "", "messages belong to their thread, too"


def test_malloc_and_free(opened):
    status, pointer = acl.aclrtMalloc(100, 0)
    assert status == 0 and pointer % 64 == 0
    held = runtime.heap.starting_at(pointer)
    assert (held.bytes == 0xFF).all(), "new memory is poisoned"
    assert acl.aclrtMalloc(0, 0) == (100000, None)
    for bad in (-1, 2**64, "8", None, 1.5):
        assert acl.aclrtMalloc(bad, 0) == (107000, None), bad
    for size in (2**62, 2**64 - 1):
        assert acl.aclrtMalloc(size, 0) == (207001, None)
    assert "size on Ascend950PR_9589" in message()
    assert acl.aclrtFree(None) == 100000
    assert acl.aclrtFree(pointer + 1) == 107000 and "byte 1 of the 100" in message()
    assert acl.aclrtFree(4096) == 107000 and "no allocation holds" in message()
    assert acl.aclrtFreeHost(pointer) == 107000
    assert acl.aclrtFree(pointer) == 0
    assert acl.aclrtFree(pointer) == 107000 and "freed memory (100 bytes of aclrtMalloc)" in message()
    status, host = acl.aclrtMallocHost(10)
    assert status == 0 and acl.aclrtFree(host) == 107000 and acl.aclrtFreeHost(host) == 0
    free, total = acl.aclrtGetMemInfo(1)[1:]
    assert total == 137_438_953_472 and free == total
    pointer = acl.aclrtMalloc(1000, 0)[1]
    assert acl.aclrtGetMemInfo(1)[1] == total - 1000
    assert acl.aclrtFree(pointer) == 0


def test_the_device_has_so_much_memory():
    small = acl.Device("Ascend910B1").product.replace(hbm_bytes=4096)
    with acl.Device(small):
        pointer = acl.aclrtMalloc(4000)[1]
        assert acl.aclrtMalloc(200)[0] == 207001
        assert "96 of 4096 bytes" in acl.get_recent_err_msg()
        assert acl.aclrtFree(pointer) == 0
        assert acl.aclrtMalloc(200)[0] == 0
    with acl.Device("Ascend910A") as device, pytest.raises(acl.AclnnError, match="available") as error:
        assert device.product.hbm_bytes is None
        acl.create_tensor((2**40,), "float32")
    assert error.value.status == 207001


def test_memcpy(opened):
    data, back = np.arange(100, dtype=np.uint8), np.zeros(100, np.uint8)
    pointer = acl.aclrtMalloc(100)[1]
    assert acl.aclrtMemcpy(pointer, 100, data, 100, H2D) == 0
    assert acl.aclrtMemcpy(back, 100, pointer, 100, D2H) == 0 and (back == data).all()
    assert acl.aclrtMemcpy(back.ctypes.data, 100, pointer, 100, D2H) == 0, "host memory by address"
    assert acl.aclrtMemcpy(pointer + 10, 90, pointer, 90, D2D) == 0
    assert acl.aclrtMemcpy(back, 100, pointer, 100, DEFAULT) == 0
    assert (back[10:] == data[:90]).all() and (back[:10] == data[:10]).all(), "overlapping copies come out right"
    assert acl.aclrtMemcpy(back.ctypes.data + 1, 99, back.ctypes.data, 99, H2H) == 0
    assert (back[1:] == np.r_[data[:10], data[:89]]).all()
    assert acl.aclrtMemcpyAsync(back, 100, pointer, 100, D2H, None) == 0

    def refused(code, *args):
        assert acl.aclrtMemcpy(*args) == code, args
        return message()

    assert "dst" in refused(100000, None, 100, data, 100, H2D)
    assert "src" in refused(100000, pointer, 100, 0, 100, H2D)
    for kind in (6, 7, -1, 99, None, "1", True):
        assert "kind" in refused(100000, pointer, 100, data, 100, kind)
    assert "count: got 0" in refused(107000, pointer, 100, data, 0, H2D)
    assert "destMax = 50" in refused(107000, pointer, 50, data, 100, H2D)
    assert "at most 99 bytes there" in refused(107000, pointer + 1, 100, data, 100, H2D)
    assert "at most 99 bytes there" in refused(107000, back, 100, pointer + 1, 100, D2H)
    assert "device memory" in refused(107000, pointer, 100, pointer, 100, H2D), "src must be host memory"
    assert "no allocation" in refused(107000, back.ctypes.data, 100, data, 100, H2D), "dst must be device memory"
    assert "at least 200 bytes" in refused(107000, back, 200, pointer, 200, D2H)
    assert "not mapped" in refused(107000, pointer, 100, 8, 100, H2D)
    assert "not mapped" in refused(107000, 8, 100, pointer, 100, D2H)
    assert "buffer" in refused(107000, back[::2], 10, pointer, 10, D2H)
    assert "buffer" in refused(107000, bytes(100), 100, pointer, 100, D2H)
    assert acl.aclrtFree(pointer) == 0
    assert "freed memory" in refused(107000, pointer, 100, data, 100, H2D)


def test_memset(opened):
    pointer = acl.aclrtMalloc(64)[1]
    assert acl.aclrtMemset(pointer, 64, 0x1FF, 32) == 0
    assert acl.aclrtMemset(pointer + 32, 32, 3, 32) == 0 == acl.aclrtMemsetAsync(pointer, 64, 7, 1, None)
    held = runtime.heap.starting_at(pointer).bytes
    assert held.tolist() == [7] + [0xFF] * 31 + [3] * 32
    assert acl.aclrtMemset(None, 64, 0, 1) == 100000
    assert acl.aclrtMemset(pointer, 64, 0, 0) == 107000 == acl.aclrtMemset(pointer, 8, 0, 9)
    assert acl.aclrtMemset(pointer + 1, 64, 0, 64) == 107000 == acl.aclrtMemset(pointer, 2**64, 0, 1)
    assert acl.aclrtFree(pointer) == 0


def test_an_overwritten_canary_is_found(opened):
    for offset, side in ((-1, "before"), (40, "after")):
        pointer = acl.aclrtMalloc(40)[1]
        ctypes.memset(pointer + offset, 0, 1)
        assert acl.leak_report()[-1].damaged == (side,)
        assert acl.aclrtFree(pointer) == 207002
        assert f"canary {side} its 40 bytes" in message()
    assert len(set(CANARY.tolist())) == 64


def test_leaks_are_reported():
    assert acl.aclInit() == 0 == acl.aclrtSetDevice(0)
    pointer = acl.aclrtMalloc(77)[1]
    host = acl.aclrtMallocHost(5)[1]
    tensor = acl.create_tensor((3,), "float32")
    assert {leak.size for leak in acl.leak_report()} == {77, 5}, "memory of create_tensor is freed with the tensor"
    assert acl.aclrtResetDevice(0) == 0
    assert acl.aclFinalize() == 0
    assert [(leak.pointer, leak.what) for leak in acl.leak_report()] == [
        (pointer, "aclrtMalloc"), (host, "aclrtMallocHost")
    ]  # fmt: skip
    assert str(acl.leak_report()[0]) == f"aclrtMalloc: 77 bytes at {pointer:#x} on device 0 not freed"
    with pytest.raises(acl.AclnnError, match="freed memory"):
        tensor.to_host()
    assert acl.aclInit() == 0
    assert acl.leak_report() == (), "aclInit starts a new account"
    assert acl.aclFinalize() == 0 and acl.leak_report() == ()


def test_a_device_reports_its_own_leaks():
    with acl.Device() as device:
        acl.aclrtMalloc(9)
        acl.create_tensor((2,), "float32")
    assert [leak.size for leak in device.leaks] == [9] and acl.leak_report() == ()
    assert runtime.heap.live() == []


def test_devices_nest_and_close():
    with acl.Device("Ascend910A") as outer:
        with acl.Device("Ascend910B1") as inner:
            assert acl.aclrtGetSocName() == "Ascend910B1" and inner.index != outer.index
            assert acl.aclrtGetDeviceCount() == (0, 3)
        assert acl.aclrtGetSocName() == "Ascend910A"
        with pytest.raises(acl.AclnnError.__mro__[1], match="entered"), outer:
            pass
    assert runtime.devices == {}
    with pytest.raises(ValueError, match="entered"):
        _ = outer.index
    for bad in ({"checks": "none"}, {"engine": "slow"}, {"saturation": "no"}, {"product": "x"}):
        with pytest.raises(ValueError, match="allowed"):
            acl.Device(**bad)
    with pytest.raises(ValueError, match="no inf/nan mode"):
        acl.Device("Ascend910A", saturation="infnan")
    with pytest.raises(acl.AclnnError, match="aclInit") as error:
        acl.create_tensor((2,), "float32")
    assert error.value.status == 100001


def test_tensor_description(a2):
    shape, strides, storage = [4, 2], (8, 1), np.array([32])
    t = acl.aclCreateTensor(shape, 2, 0, strides, 3, 2, storage, 1, None)
    assert acl.aclGetViewShape(t) == (0, (4, 2), 2)
    assert acl.aclGetViewStrides(int(t)) == (0, (8, 1), 2)
    assert acl.aclGetStorageShape(t) == (0, (32,), 1)
    assert acl.aclGetViewOffset(t) == (0, 3)
    assert acl.aclGetFormat(t) == (0, acl.aclFormat.ACL_FORMAT_ND)
    assert acl.aclGetDataType(t) == (0, acl.aclDataType.ACL_FLOAT)
    assert acl.aclGetRawTensorAddr(t) == (0, 0)
    assert acl.aclSetRawTensorAddr(t, 4096) == 0 and acl.aclGetRawTensorAddr(t) == (0, 4096)
    c_array = (ctypes.c_int64 * 2)(5, 6)
    assert acl.aclInitTensor(t, ctypes.addressof(c_array), 2, 27, None, 0, 0, [30], 1, 0) == 0
    assert acl.aclGetViewShape(t)[1] == (5, 6) and acl.aclGetViewStrides(t)[1] == (6, 1)
    for get in (
        acl.aclGetViewShape,
        acl.aclGetViewOffset,
        acl.aclGetFormat,
        acl.aclGetDataType,
        acl.aclGetStorageShape,
    ):
        assert get(None)[0] == 161001
    assert acl.aclSetRawTensorAddr(None, 1) == 161001 == acl.aclInitTensor(None, [1], 1, 0, None, 0, 2, [1], 1, 0)
    assert acl.aclDestroyTensor(None) == 0 == acl.aclDestroyTensor(t)
    assert acl.aclDestroyTensor(t) == 161002 == acl.aclGetViewShape(int(t))[0]
    # From the vendor's own unit tests: null with a rank above 0 gives a null pointer, rank 0 a tensor.
    assert acl.aclCreateTensor(None, 3, 0, None, 0, 2, [1], 1, None) is None
    assert acl.aclCreateTensor([1], 1, 0, None, 0, 2, None, 3, None) is None
    assert acl.aclCreateTensor(None, 0, 0, None, 0, 2, None, 0, None) is not None
    assert acl.aclCreateTensor([0], 1, 0, [1], 0, 2, [1], 1, None) is not None
    assert acl.aclCreateTensor([1], 2**63, 0, None, 0, 2, [1], 1, None) is None
    assert acl.aclCreateTensor([2**63], 1, 0, None, 0, 2, [1], 1, None) is None
    assert acl.aclCreateTensor(8, 2, 0, None, 0, 2, [1], 1, None) is None and "not mapped" in message()


def test_names_of_types_and_formats(a2):
    for names, number in (
        (("float32", "ACL_FLOAT", "FLOAT", "fp32", np.float32, 0), 0),
        (("float16", "ACL_FLOAT16", "half", "fp16", np.float16, 1), 1),
        (("bfloat16", "BF16", "ACL_BF16", 27), 27),
        (("int32", "ACL_INT32", np.int32), 3),
    ):
        for name in names:
            assert acl.create_tensor((1,), name).dtype == number, name
    for name in ("ND", "nd", "ACL_FORMAT_ND", 2):
        assert acl.create_tensor((1,), "half", format=name).format == 2
    assert acl.create_tensor((1,), "half", format="FRACTAL_Z_3D").format == acl.aclFormat.ACL_FRACTAL_Z_3D
    with pytest.raises(acl.AclnnError, match="float128x"):
        acl.create_tensor((1,), "float128x")
    with pytest.raises(acl.AclnnError, match="NCWH"):
        acl.create_tensor((1,), "half", format="NCWH")
    sizes = {0: 4, 1: 2, 27: 2, 11: 8, 17: 16, 29: 0, -1: 0, 999: 0}
    assert {t: acl.aclDataTypeSize(t) for t in sizes} == sizes


def test_create_tensor(a2):
    t = acl.create_tensor((2, 3), "float16", strides=(1, 2), data=np.arange(6))
    assert t.to_host().tolist() == [[0, 2, 4], [1, 3, 5]] and t.to_host().dtype == np.float16
    assert np.isnan(acl.create_tensor((2, 2), "bfloat16").to_host().astype(np.float32)).all()
    assert acl.create_tensor((2, 0), "float32").to_host().shape == (2, 0)
    assert acl.create_tensor((2,), "float32", strides=(3,), offset=1).storage_shape == (5,)
    assert acl.create_tensor((), "float32", data=5).to_host() == 5
    big = acl.create_tensor((2**62, 2), "float32", strides=(0, 0))
    with pytest.raises(acl.AclnnError):
        big.to_host()
    for bad in (
        {"view_shape": (-1,)}, {"view_shape": (2**63,)}, {"view_shape": 3}, {"view_shape": (1.5,)},
        {"view_shape": (2,), "data": np.zeros(3), "storage_shape": (2,)}, {"view_shape": (2,), "strides": (1, 1)},
        {"view_shape": (2**40, 2**40)}, {"view_shape": (1,), "dtype": "HIFLOAT8", "data": np.zeros(1)},
    ):  # fmt: skip
        with pytest.raises(acl.AclnnError) as error:
            acl.create_tensor(**{"dtype": "float32"} | bad)
        assert error.value.status == 161002
    live = len(runtime.heap.live())
    address = t.data
    del t
    assert len(runtime.heap.live()) == live - 1, "the memory goes with the tensor"
    assert runtime.heap.holding(address) is None


def test_an_executor_serves_once(a2):
    call = Call().fill()
    tensors = call.make()
    _, size, executor = call.first_phase(tensors)
    assert second_phase(size, executor) == 0
    assert second_phase(size, executor) == 561000
    assert "used up by its second phase" in message()
    assert second_phase(size, int(executor)) == 561000 and "used up or destroyed" in message()
    assert acl.aclDestroyAclOpExecutor(executor) == 561000 == acl.aclSetAclOpExecutorRepeatable(executor)
    assert acl.aclDestroyAclOpExecutor(None) == 561103 == acl.aclSetAclOpExecutorRepeatable(None)


def test_a_repeatable_executor(a2):
    call = Call().fill()
    tensors = call.make()
    _, size, executor = call.first_phase(tensors)
    assert acl.aclSetAclOpExecutorRepeatable(executor) == 0
    assert second_phase(size, executor) == 0 == second_phase(size, executor)
    before = tensors["sumDy"].to_host()
    doubled = acl.create_tensor((2, 3, 1, 4), "float32", data=2 * tensors["gradOut"].to_host())
    assert acl.aclSetInputTensorAddr(executor, 0, tensors["gradOut"], doubled.data) == 0
    assert second_phase(size, executor) == 0
    assert (tensors["sumDy"].to_host() == 2 * before).all()
    for f in (acl.aclSetInputTensorAddr, acl.aclSetOutputTensorAddr, acl.aclSetTensorAddr):
        assert f(executor, 0, None, 1) == 561103 == f(None, 0, tensors["mean"], tensors["mean"].data)
    assert acl.aclDestroyAclOpExecutor(executor) == 0
    assert second_phase(size, executor) == 561000


def test_second_phase_refusals(a2):
    call = Call().fill()
    second = aclnn.aclnnBatchNormReduceBackward

    def fresh():
        tensors = call.make()
        return tensors, *call.first_phase(tensors)[1:]

    tensors, size, executor = fresh()
    workspace = acl.aclrtMalloc(size)[1]
    assert second(workspace, size, None, None) == 161001 and f"{OPERATOR}: " in message()
    assert second(workspace, size, 0x9999999, None) == 561000
    assert second(workspace, size, tensors["mean"], None) == 561000
    assert second(None, size, executor, None) == 161001
    assert second(workspace, size, executor, None) == 561000, "the vendor's library drops the executor"
    rows = [
        ((workspace, size - 1, None), 161002, "workspaceSize"),
        ((None, 0, None), 161002, "workspaceSize"),
        ((workspace + 64, size, None), 361001, "workspace"),
        ((4096, size, None), 361001, "no allocation"),
        ((workspace, size, 77), 361001, "stream"),
        ((workspace, -1, None), 161002, "workspaceSize"),
        ((workspace, "all", None), 161002, "workspaceSize"),
    ]
    for (place, length, stream), code, text in rows:
        tensors, _, executor = fresh()
        before = {n: t.to_host() for n, t in tensors.items()}
        assert second(place, length, executor, stream) == code
        assert text in message()
        assert all(bits(before[n]) == bits(t.to_host()) for n, t in tensors.items()), "nothing is written"
    tensors, size, executor = fresh()
    assert acl.aclDestroyTensor(tensors["mean"]) == 0
    assert second(workspace, size, executor, None) == 361001 and "mean" in message()
    tensors, size, executor = fresh()
    acl.aclSetRawTensorAddr(tensors["sumDy"], 0)
    assert second(workspace, size, executor, None) == 361001 and "a null pointer" in message()
    tensors, size, executor = fresh()
    acl.aclInitTensor(tensors["sumDy"], [3], 1, 1, None, 0, 2, [3], 1, tensors["sumDy"].data)
    assert second(workspace, size, executor, None) == 161002 and "described anew" in message()
    tensors, size, executor = fresh()
    short = acl.aclrtMalloc(95)[1]
    acl.aclSetRawTensorAddr(tensors["input"], short)
    assert second(workspace, size, executor, None) == 361001 and "96 bytes of device memory" in message()
    acl.aclrtFree(short)
    _, size, executor = fresh()
    assert acl.aclrtFree(workspace) == 0
    assert second(workspace, size, executor, None) == 361001 and "freed memory" in message()


def test_both_phases_on_one_device(a2):
    call = Call().fill()
    tensors = call.make()
    _, size, executor = call.first_phase(tensors)
    workspace = acl.aclrtMalloc(size)[1]
    with acl.Device():
        assert aclnn.aclnnBatchNormReduceBackward(workspace, size, executor, None) == 361001
        assert "where the first phase was called" in message()
    assert acl.aclrtFree(workspace) == 0


def test_status_names_are_complete():
    assert len(acl.AclnnStatus) == 27
    assert acl.AclnnStatus(161002).name == acl.name_of(161002) == "ACLNN_ERR_PARAM_INVALID"
    for code in (0, 161001, 361001, 561000, 561001, 561002, 561003, *range(561101, 561120), 100000, 100001, 100002,
                 200000, 107000, 107001, 107002, 207001, 507000, 507014, 507015, 507035, 507046):  # fmt: skip
        assert not acl.name_of(code).startswith("unknown"), code
    assert acl.name_of(507046) == "ACL_ERROR_RT_STREAM_SYNC_TIMEOUT"
    assert acl.name_of(12) == "unknown status 12"


def test_aclnn_init_and_finalize():
    assert aclnn.aclnnInit(None) == 0 == aclnn.aclnnFinalize()
