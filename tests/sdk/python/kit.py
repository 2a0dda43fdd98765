# SPDX-License-Identifier: Apache-2.0
"""What every check uses. One source serves both clients: do() waits for what the async client returns and hands through
what the sync one does. A check runs in a thread and an event loop of its own; what it made through fresh_dir() and
new_sandbox() goes away with it."""
import asyncio
import inspect
import os
import queue
import sys
import threading
import time
import traceback
import uuid

import e2b

MODE = sys.argv[1] if len(sys.argv) > 1 else 'sync'
TARGET = os.environ.get('SDK_TARGET', 'debug')  # debug: celld itself; gateway: the control plane and its proxy
SCALE = float(os.environ.get('T_SCALE') or 1)
LIMIT = 30  # seconds for a check
WORKERS = 4
ASYNC = MODE == 'async'
GATEWAY = TARGET == 'gateway'
PART = f'python-{MODE}/{TARGET}'
Sandbox = e2b.AsyncSandbox if ASYNC else e2b.Sandbox

CHECKS = []
SHARED = {}  # in gateway mode the sandbox that the checks of commands and files share, its home and its user
local = threading.local()


def check(on=None, client=None, limit=LIMIT):
    """Register a check; on='gateway' or 'debug' keeps it to that target, client='sync' or 'async' to that client."""

    def register(function):
        name = f"{function.__module__.removeprefix('check_')}.{function.__name__}"
        if on in (None, TARGET) and client in (None, MODE):
            CHECKS.append((name, function, limit * SCALE))
        return function

    return register


async def do(result):
    return await result if inspect.isawaitable(result) else result


def eq(seen, expected, what=''):
    if seen != expected:
        raise AssertionError(f"{what + ': ' if what else ''}expected {short(expected)}, saw {short(seen)}")


def ok(condition, expected, seen):
    if not condition:
        raise AssertionError(f'expected {expected}, saw {short(seen)}')


def short(value):
    text = repr(value)
    return text if len(text) <= 300 else f'{text[:200]}... ({len(text)} characters)'


async def raises(wanted, call, text=''):
    """call() must fail with exactly that class, and say `text`."""
    try:
        result = await do(call())
    except Exception as error:
        if type(error) is not wanted:
            raise AssertionError(f'expected {wanted.__name__}, saw {type(error).__name__}: {error}') from error
        ok(text in str(error), f'a message with {text!r}', str(error))
        return error
    raise AssertionError(f'expected {wanted.__name__}, saw the result {short(result)}')


async def eventually(probe, expected, limit=10):
    """Ask until the answer is true; the last answer is what a failure shows."""
    end = time.monotonic() + limit * SCALE
    while True:
        seen = await do(probe())
        if seen:
            return seen
        if time.monotonic() > end:
            raise AssertionError(f'expected {expected} within {limit} s, saw {short(seen)}')
        await asyncio.sleep(0.05)


async def joined(stream):
    if hasattr(stream, '__aiter__'):
        return b''.join([bytes(chunk) async for chunk in stream])
    return b''.join(bytes(chunk) for chunk in stream)


async def parallel(*calls):
    """Run calls side by side, for the sync client each in a thread."""
    if ASYNC:
        return await asyncio.gather(*[call() for call in calls])
    return await asyncio.gather(*[asyncio.to_thread(call) for call in calls])


async def run(sandbox, command, **options):
    return (await do(sandbox.commands.run(command, **options))).stdout


async def fresh_dir(sandbox, suffix=''):
    path = f"{SHARED['base']}/sdk-{uuid.uuid4().hex[:12]}{suffix}"
    local.dirs.append((sandbox, path))
    await do(sandbox.files.make_dir(path))
    return path


async def new_sandbox(*template, **options):
    options.setdefault('timeout', 120)
    return keep(await do(Sandbox.create(*template, **options)))


def keep(sandbox):
    local.owned.append(sandbox)
    return sandbox


async def open_sandbox():
    if GATEWAY:
        return await do(Sandbox.connect(SHARED['id']))
    return await do(Sandbox.create())


async def clean_up():
    # Best effort: some checks remove their directory or kill their sandbox themselves.
    for sandbox, path in local.dirs:
        try:
            await do(sandbox.files.remove(path))
        except Exception:
            pass
    for sandbox in local.owned:
        try:
            await do(sandbox.kill())
        except Exception:
            pass


async def one(function):
    sandbox = await open_sandbox() if 's' in inspect.signature(function).parameters else None
    try:
        await (function(sandbox) if sandbox else function())
    finally:
        await clean_up()


def guarded(function, outcome):
    local.dirs, local.owned = [], []
    try:
        asyncio.run(one(function))
        outcome['passed'] = True
    except AssertionError as error:
        outcome['error'] = str(error)
    except BaseException as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if os.path.dirname(f.filename) == HERE]
        where = f' ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})' if frames else ''
        outcome['error'] = f'expected no error, saw {type(error).__name__}: {error}{where}'


HERE = os.path.dirname(os.path.abspath(__file__))


def limited(function, limit):
    """The failure's text, or None. A check that hangs keeps its daemon thread; the program ends by os._exit."""
    outcome = {}
    thread = threading.Thread(target=guarded, args=(function, outcome), daemon=True)
    thread.start()
    thread.join(limit)
    if thread.is_alive():
        return f'expected an end within {limit:.0f} s, saw none'
    return None if outcome.get('passed') else outcome.get('error', 'expected an end, saw the thread die')


async def prepare():
    """Where the checks work, and as whom."""
    if GATEWAY:
        sandbox = await do(Sandbox.create(timeout=900))
        SHARED['id'] = sandbox.sandbox_id
    else:
        sandbox = await do(Sandbox.create())
    SHARED['home'], SHARED['user'] = (await run(sandbox, 'echo $HOME; id -un')).split()
    SHARED['base'] = SHARED['home'] if GATEWAY else os.environ['SDK_SCRATCH']


def work(todo, failures, verbose):
    while True:
        try:
            name, function, limit = todo.get_nowait()
        except queue.Empty:
            return
        start = time.monotonic()
        error = limited(function, limit)
        if error is not None:
            failures.append(name)
            print(f'FAIL {PART} {name}: ' + ' '.join(error.split()), flush=True)
        elif verbose:
            print(f'ok   {PART} {name} {time.monotonic() - start:.2f} s', flush=True)


def main():
    asyncio.run(prepare())
    only = sys.argv[2:]
    chosen = [c for c in CHECKS if not only or any(c[0].startswith(o) for o in only)]
    todo, failures = queue.Queue(), []
    for item in chosen:
        todo.put(item)
    workers = [threading.Thread(target=work, args=(todo, failures, os.environ.get('V')), daemon=True)
               for _ in range(WORKERS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if GATEWAY:
        asyncio.run(do_kill(SHARED['id']))
    print(f'{PART}: {len(chosen) - len(failures)} passed, {len(failures)} failed', flush=True)
    os._exit(1 if failures or not chosen else 0)


async def do_kill(sandbox_id):
    await do(Sandbox.kill(sandbox_id))
