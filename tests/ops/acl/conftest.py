"""Every test begins and ends with a runtime nobody initialised, and no damaged canary."""

import pytest

from ops import acl
from ops.acl.state import runtime


@pytest.fixture(autouse=True)
def clean_runtime(monkeypatch):
    monkeypatch.delenv("AICORE_PRODUCT", raising=False)
    monkeypatch.delenv("AICORE_ENGINE", raising=False)
    monkeypatch.delenv("AICORE_EVENTS", raising=False)
    acl.aclGetRecentErrMsg()
    assert not runtime.initialised
    yield
    damaged = [a for a in runtime.heap.live() if a.damaged()]
    if runtime.explicit_init:
        acl.aclFinalize()
    runtime.current.set(None)
    assert not damaged
    assert not runtime.devices
    runtime.leaks.clear()


@pytest.fixture
def a2():
    with acl.Device("Ascend910B1") as device:
        yield device


@pytest.fixture
def ascend950():
    with acl.Device("Ascend950PR_9589") as device:
        yield device
