# SPDX-License-Identifier: Apache-2.0
"""job.py [--emulated] WORDS...: starts WORDS (celld, or qemu and celld) on a port of its own and has it do the main job: both channels of a
command apart, exit codes and signals, input, a timeout, a terminal, files in and out, a watch, a crash of the daemon, the end. Exit status 1 if
anything was wrong."""

import base64
import ctypes
import http.client
import json
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time

LIMIT = 60  # seconds for any one answer: emulation on a busy machine is slow
PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans():
    """qemu's user mode does not know the call by which celld becomes the parent of what its daemon leaves behind, but keeps what it begins with."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0:
        raise OSError(ctypes.get_errno(), "prctl")


class Box:
    def __init__(self, words, workspace, emulated):
        self.workspace = workspace
        options = ["--listen", "127.0.0.1:0", "--envd-listen", "127.0.0.1:0", "--workspace", workspace, "--venv", "off", "--init"]
        before = adopt_orphans if emulated else None
        self.process = subprocess.Popen(words + options, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, preexec_fn=before)
        line, ready = "", None
        while not ready:
            line = self.process.stderr.readline().decode()
            if not line:
                raise AssertionError("celld did not start")
            ready = re.search(r"ready: sandboxd \S+:(\d+), envd \S+:(\d+)", line)
            if not ready:
                print("dist:    " + line, end="")
        self.port, self.envd_port = int(ready[1]), int(ready[2])

    def ask(self, method, path, body=None, port=None):
        """(status, decoded JSON or bytes)"""
        c = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=LIMIT)
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        c.request(method, path, data, {"Content-Type": "application/json"} if not isinstance(body, bytes) else {})
        answer = c.getresponse()
        got = answer.read()
        c.close()
        try:
            return answer.status, json.loads(got)
        except ValueError:
            return answer.status, got

    def frames(self, path, body=None, method="POST"):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT)
        c.request(method, path, json.dumps(body) if body is not None else None)
        answer = c.getresponse()
        assert answer.status == 200, answer.read()
        for line in answer:
            if line.startswith(b"data: "):
                yield json.loads(line[6:])
        c.close()

    def run(self, command, **more):
        status, answer = self.ask("POST", "/exec", {"command": command, **more})
        assert status == 200, (status, answer)
        return answer


def eventually(get, good):
    end = time.monotonic() + LIMIT
    while True:
        got = get()
        if good(got):
            return got
        assert time.monotonic() < end, got
        time.sleep(0.05)


def channels(box):
    a = box.run("echo out; echo err >&2; exit 7")
    assert (a["stdout"], a["stderr"], a["exit_code"]) == ("out\n", "err\n", 7), a


def stream(box):
    text, ends, pids = {"stdout": b"", "stderr": b""}, [], []
    for f in box.frames("/exec/stream", {"command": "printf 'a\\n\\n'; printf b >&2; exit 3"}):
        if "channel" in f:
            assert not ends, "output after the end"
            text[f["channel"]] += base64.b64decode(f["data"])
        elif "exit" in f:
            ends.append(f["exit"])
        else:
            pids.append(f["pid"])
    assert text == {"stdout": b"a\n\n", "stderr": b"b"} and ends == [3] and len(pids) == 1, (text, ends, pids)


def bulk(box):
    """A megabyte and every value of a byte: base64 in both directions, whatever `char` is here."""
    out = b""
    for f in box.frames("/exec/stream", {"command": f"cat {box.workspace}/bytes; head -c 1000000 /dev/zero"}):
        out += base64.b64decode(f.get("data", "")) if "channel" in f else b""
    assert out == bytes(range(256)) + bytes(1000000), len(out)


def died(box):
    ends = [f for f in box.frames("/exec/stream", {"command": "kill -KILL $$"}) if "exit" in f]
    assert len(ends) == 1 and ends[0]["signal"] == "SIGKILL", ends


def timeout(box):
    a = box.run("sleep 1000 & sleep 1000", timeout=1)
    assert a["timed_out"] is True, a


def missing(box):
    status, a = box.ask("POST", "/exec", {"command": "true", "workdir": "/nonexistent"})
    assert status == 400 and a["errno"] == "ENOENT", (status, a)


def stdin(box):
    frames = box.frames("/exec/stream", {"command": "cat"})
    pid = next(frames)["pid"]
    status, a = box.ask("POST", "/exec/stdin", {"pid": pid, "data": base64.b64encode(b"in\xff\x00").decode()})
    assert status == 200, a
    status, a = box.ask("POST", "/exec/stdin/close", {"pid": pid})
    assert status == 200, a
    rest = list(frames)
    out = b"".join(base64.b64decode(f["data"]) for f in rest if "channel" in f)
    assert out == b"in\xff\x00" and rest[-1].get("exit") == 0, rest


def signals(box):
    frames = box.frames("/exec/stream", {"command": "trap 'echo caught; exit 5' TERM; echo up; while :; do sleep 0.1; done"})
    pid = next(frames)["pid"]
    next(frames)
    status, a = box.ask("POST", "/exec/signal", {"pid": pid, "signal": "SIGTERM"})
    assert status == 200, a
    assert list(frames)[-1].get("exit") == 5


def files(box):
    every = bytes(range(256))
    path = box.workspace + "/bytes"
    status, a = box.ask("POST", "/files/write", {"path": path, "content": base64.b64encode(every).decode(), "encoding": "base64"})
    assert status == 200 and a["size"] == 256, a
    with open(path, "rb") as f:
        assert f.read() == every
    status, a = box.ask("GET", f"/files/read?path={path}&encoding=base64")
    assert status == 200 and base64.b64decode(a["content"]) == every, a
    status, a = box.ask("GET", "/files/read?path=/nonexistent")
    assert status == 404, (status, a)


def envd_files(box):
    every = bytes(range(256)) * 4096
    boundary = b"celld-boundary"
    head = b'--%s\r\nContent-Disposition: form-data; name="file"; filename="up"\r\n\r\n' % boundary
    c = http.client.HTTPConnection("127.0.0.1", box.envd_port, timeout=LIMIT)
    path = f"/files?path={box.workspace}/up&username=root"
    c.request("POST", path, head + every + b"\r\n--%s--\r\n" % boundary, {"Content-Type": "multipart/form-data; boundary=celld-boundary"})
    assert c.getresponse().status == 200
    c.close()
    status, got = box.ask("GET", path, port=box.envd_port)
    assert status == 200 and got == every, status


def envd_process(box):
    """Surface B's stream of a command, in envelopes."""
    body = json.dumps({"process": {"cmd": "/bin/sh", "args": ["-c", "echo out; echo err >&2; exit 4"]}}).encode()
    c = http.client.HTTPConnection("127.0.0.1", box.envd_port, timeout=LIMIT)
    head = {"Content-Type": "application/connect+json", "Connect-Protocol-Version": "1"}
    c.request("POST", "/process.Process/Start", struct.pack(">BI", 0, len(body)) + body, head)
    got, events = c.getresponse().read(), []
    c.close()
    while got:
        size = struct.unpack(">BI", got[:5])[1]
        events.append(json.loads(got[5 : 5 + size]).get("event", {}))
        got = got[5 + size :]
    out = {k: b"".join(base64.b64decode(e["data"][k]) for e in events if k in e.get("data", {})) for k in ("stdout", "stderr")}
    ends = [e["end"] for e in events if "end" in e]
    assert out == {"stdout": b"out\n", "stderr": b"err\n"} and len(ends) == 1 and ends[0]["exitCode"] == 4, events


def watch(box):
    status, a = box.ask("POST", "/watch/create", {"path": box.workspace, "recursive": True})
    assert status == 200, (status, a)
    seen = []

    def more():
        status, events = box.ask("GET", f"/watch/events?watcher_id={a['watcher_id']}")
        assert status == 200, events
        seen.extend((e["name"], e["type"]) for e in events["events"])
        return seen

    with open(box.workspace + "/seen", "w", encoding="utf-8") as f:
        f.write("text")
    eventually(more, lambda s: (box.workspace + "/seen", 1) in s and (box.workspace + "/seen", 2) in s)


def terminal(box):
    status, a = box.ask("POST", "/pty/create", {"argv": ["/bin/sh", "-c", "stty size; read x; echo got $x"], "rows": 30, "cols": 100})
    assert status == 200, (status, a)
    frames = box.frames(f"/exec/attach?pid={a['pid']}", method="GET")
    status, b = box.ask("POST", "/pty/input", {"terminal_id": a["terminal_id"], "data": "typed\n"})
    assert status == 200, (status, b)
    out = b"".join(base64.b64decode(f["data"]) for f in frames if "channel" in f)
    assert b"30 100" in out and b"got typed" in out, out


def crash(box):
    """A command outlives the daemon, and init makes another daemon, which has the command."""
    status, a = box.ask("POST", "/exec/background", {"run_id": "lives", "command": "sleep 3; echo lived"})
    assert status == 200, a
    with open(f"/proc/{box.process.pid}/task/{box.process.pid}/children", encoding="utf-8") as f:
        daemon = int(f.read().split()[0])
    os.kill(daemon, signal.SIGKILL)

    def state():
        try:
            return box.ask("GET", "/exec/background/lives")[1]
        except (OSError, http.client.HTTPException):
            return None

    got = eventually(state, lambda s: s and s.get("status") == "completed")
    assert got["stdout"] == "lived\n" and got["exit_code"] == 0, got


def stop(box):
    """TERM ends all of it, the commands as well."""
    frames = box.frames("/exec/stream", {"command": "sleep 1000"})
    pid = next(frames)["pid"]
    box.process.send_signal(signal.SIGTERM)
    list(frames)
    assert box.process.wait(LIMIT) == 0, box.process.returncode
    eventually(lambda: os.path.exists(f"/proc/{pid}"), lambda there: not there)


JOB = [channels, files, stream, bulk, died, timeout, missing, stdin, signals, envd_files, envd_process, watch, terminal, crash, stop]


def main(words):
    emulated = words[0] == "--emulated"
    wrong = 0
    with tempfile.TemporaryDirectory() as workspace:
        box = Box(words[emulated:], workspace, emulated)
        try:
            for part in JOB:
                try:
                    part(box)
                except Exception as e:  # one part's failure, of whatever kind, is told, and the next is tried
                    wrong += 1
                    print(f"dist:    {part.__name__}: WRONG: {type(e).__name__}: {e}")
        finally:
            if box.process.poll() is None:
                box.process.terminate()
                try:
                    box.process.wait(10)
                except subprocess.TimeoutExpired:
                    box.process.kill()
    print(f"dist:    main job: {len(JOB) - wrong} of {len(JOB)} parts done, {wrong} wrong")
    return 1 if wrong else 0


sys.exit(main(sys.argv[1:]))
