# SPDX-License-Identifier: Apache-2.0
"""job.py PID USER [PART...]: PID is the celld that is PID 1 of a container, on its default ports; it is told to do the main job: both channels
apart, exit codes and signals, input, files in and out by both surfaces, a watch, orphans, a crash of the daemon, the end by TERM. USER is who
commands have to be. To be started in the container's network (nsenter). Exit status 1 if anything was wrong, or a PART is unknown."""

import base64
import http.client
import json
import os
import signal
import sys
import time

A, B = 2024, 49983  # where the image listens without any option
LIMIT = 30  # seconds for any one answer
BYTES = bytes(range(256)) * 1024


def ask(method, path, body=None, port=A):
    """(status, decoded JSON or bytes)"""
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)
    c.request(method, path, body if body is None or isinstance(body, bytes) else json.dumps(body))
    answer = c.getresponse()
    status, got = answer.status, answer.read()
    c.close()
    try:
        return status, json.loads(got)
    except ValueError:
        return status, got


def good(method, path, body=None):
    status, answer = ask(method, path, body)
    assert status == 200, (path, status, answer)
    return answer


def run(command):
    return good("POST", "/exec", {"command": command})


def frames(body):
    c = http.client.HTTPConnection("127.0.0.1", A, timeout=LIMIT)
    c.request("POST", "/exec/stream", json.dumps(body))
    answer = c.getresponse()
    assert answer.status == 200, answer.read()
    for line in answer:
        if line.startswith(b"data: "):
            yield json.loads(line[6:])
    c.close()


def eventually(get, wanted):
    end = time.monotonic() + LIMIT
    while True:
        try:
            got = get()
            if wanted(got):
                return got
        except (OSError, http.client.HTTPException) as e:
            got = e
        assert time.monotonic() < end, got
        time.sleep(0.05)


def ready(_pid, _user):
    eventually(lambda: ask("GET", "/ready"), lambda a: a[0] == 200)
    assert ask("GET", "/health") == (204, b"") and ask("GET", "/health", port=B)[0] == 204


def who(_pid, user):
    """celld itself is PID 1, with no shell around it; commands are USER, in /workspace, which is theirs."""
    a = run("cat /proc/1/comm; id -un; pwd; touch mine && rm mine && echo written")
    assert a["stdout"] == f"celld\n{user}\n/workspace\nwritten\n", a


def channels(_pid, _user):
    a = run("echo out; echo err >&2; exit 7")
    assert (a["stdout"], a["stderr"], a["exit_code"]) == ("out\n", "err\n", 7), a


def stream(_pid, _user):
    text, ends = {"stdout": b"", "stderr": b""}, []
    for f in frames({"command": "printf 'a\\n\\n'; printf b >&2; exit 3"}):
        if "channel" in f:
            assert not ends, "output after the end"
            text[f["channel"]] += base64.b64decode(f["data"])
        elif "exit" in f:
            ends.append(f["exit"])
    assert text == {"stdout": b"a\n\n", "stderr": b"b"} and ends == [3], (text, ends)


def died(_pid, _user):
    a = run("kill -KILL $$")
    assert a["signal"] == "SIGKILL", a
    ends = [f for f in frames({"command": "sleep 1000 & sleep 1000", "timeout": 1}) if "exit" in f]
    assert len(ends) == 1 and ends[0]["timed_out"] is True, ends


def stdin(_pid, _user):
    f = frames({"command": "cat"})
    pid = next(f)["pid"]
    good("POST", "/exec/stdin", {"pid": pid, "data": base64.b64encode(b"in\xff\x00").decode()})
    good("POST", "/exec/stdin/close", {"pid": pid})
    rest = list(f)
    assert b"".join(base64.b64decode(x["data"]) for x in rest if "channel" in x) == b"in\xff\x00", rest
    assert rest[-1].get("exit") == 0, rest


def files(_pid, user):
    """In by one surface, out by the other, every value of a byte, and the command sees the same file."""
    a = good("POST", "/files/write", {"path": "/workspace/a", "content": base64.b64encode(BYTES).decode(), "encoding": "base64"})
    assert a["size"] == len(BYTES), a
    status, got = ask("GET", f"/files?path=/workspace/a&username={user}", port=B)
    assert status == 200 and got == BYTES, status
    out = b"".join(base64.b64decode(f["data"]) for f in frames({"command": "cat /workspace/a"}) if "channel" in f)
    assert out == BYTES, len(out)


def watch(_pid, _user):
    watcher = good("POST", "/watch/create", {"path": "/workspace", "recursive": True})["watcher_id"]
    run("mkdir -p sub && echo text >sub/seen")
    seen = []

    def more():
        seen.extend(e["name"] for e in good("GET", f"/watch/events?watcher_id={watcher}")["events"])
        return seen

    eventually(more, lambda s: any(n.endswith("sub/seen") for n in s))
    good("POST", "/watch/remove", {"watcher_id": watcher})


def orphans(_pid, _user):
    """Processes whose parents are gone come to PID 1, which leaves no zombie."""
    run("for i in 1 2 3 4 5 6 7 8; do (sh -c 'sleep 0.2; exit 3' >/dev/null 2>&1 &); done; (setsid sleep 0.2 >/dev/null 2>&1 &); true")
    lives = "cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') [A-Z] 1 '; cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') Z '"
    # Of PID 1's children the daemon alone is left.
    eventually(lambda: run(lives)["stdout"], lambda out: out == "1\n0\n")


def crash(pid, _user):
    """A command outlives the daemon, and the init part makes another daemon, which has the command."""
    good("POST", "/exec/background", {"run_id": "lives", "command": "sleep 2; echo lived"})
    with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as f:
        os.kill(int(f.read().split()[0]), signal.SIGKILL)
    a = eventually(lambda: ask("GET", "/exec/background/lives")[1], lambda a: a.get("status") == "completed")
    assert a["stdout"] == "lived\n" and a["exit_code"] == 0, a


def stop(pid, _user):
    """TERM gives the open stream an end of its own, and the container is over."""
    f = frames({"command": "trap '' TERM; echo up; while :; do sleep 0.1; done"})
    next(f), next(f)
    began = time.monotonic()
    os.kill(pid, signal.SIGTERM)
    last = list(f)[-1]
    assert "error" in last or "exit" in last, last
    eventually(lambda: os.path.exists(f"/proc/{pid}/exe"), lambda there: not there)
    assert time.monotonic() - began < 5, time.monotonic() - began


JOB = [ready, who, channels, stream, died, stdin, files, watch, orphans, crash, stop]


def main(pid, user, *names):
    assert set(names) <= {part.__name__ for part in JOB}, names
    wrong, done = 0, 0
    for part in JOB:
        if names and part.__name__ not in names:
            continue
        try:
            part(int(pid), user)
        except Exception as e:  # one part's failure, of whatever kind, is told, and the next is tried
            wrong += 1
            print(f"image: {part.__name__}: WRONG: {type(e).__name__}: {e}")
        done += 1
    print(f"image:   main job: {done} parts done, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
