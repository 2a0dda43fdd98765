# SPDX-License-Identifier: Apache-2.0
"""Terminals: create, input, size, kill, connect."""
from e2b import CommandExitException, InvalidArgumentException, NotFoundException, PtySize, TimeoutException

from kit import ASYNC, SCALE, SHARED, check, do, eq, eventually, fresh_dir, ok, raises

NOBODY = 4000000


async def create(sandbox, out, **options):
    size = PtySize(rows=24, cols=80)
    if ASYNC:
        return await sandbox.pty.create(size, on_data=lambda data: out.append(bytes(data)), **options)
    return sandbox.pty.create(size, **options)


async def attach(sandbox, pid, out):
    if ASYNC:
        return await sandbox.pty.connect(pid, on_data=lambda data: out.append(bytes(data)))
    return sandbox.pty.connect(pid)


async def end(handle, out):
    return await do(handle.wait() if ASYNC else handle.wait(on_pty=lambda data: out.append(bytes(data))))


def has(out, *texts):
    shown = b''.join(out).decode(errors='replace')
    for text in texts:
        ok(text in shown, f'{text!r} on the terminal', shown)


@check()
async def environment_and_size(s):
    out = []
    handle = await create(s, out, envs={'ABC': '123'}, cwd='/')
    await do(s.pty.send_stdin(handle.pid, b'echo "v=$ABC $TERM $PWD"; tty; stty size; exit\n'))
    eq((await end(handle, out)).exit_code, 0)
    has(out, 'v=123 xterm-256color /\r\n', '/dev/pts/', '24 80\r\n')


@check()
async def default_user_and_root(s):
    for options, name in (({}, SHARED['user']), ({'user': 'root'}, 'root')):
        out = []
        handle = await create(s, out, **options)
        await do(s.pty.send_stdin(handle.pid, b'echo "<$(id -un)>"; exit\n'))
        await end(handle, out)
        has(out, f'<{name}>\r\n')


@check()
async def resize(s):
    out = []
    handle = await create(s, out)
    await do(s.pty.resize(handle.pid, PtySize(rows=33, cols=111)))
    await do(s.pty.send_stdin(handle.pid, b'stty size; exit 7\n'))
    error = await raises(CommandExitException, lambda: end(handle, out))
    eq(error.exit_code, 7)
    has(out, '33 111\r\n')


@check()
async def unicode_input(s):
    out = []
    handle = await create(s, out)
    await do(s.pty.send_stdin(handle.pid, 'echo "<žluť 😀>" | cat; exit\n'.encode()))
    await end(handle, out)
    has(out, '\r<žluť 😀>\r\n')


@check()
async def kill(s):
    out = []
    handle = await create(s, out)
    eq(await do(s.pty.kill(handle.pid)), True)
    error = await raises(CommandExitException, lambda: end(handle, out))
    eq((error.exit_code, error.error), (-1, 'signal: killed'))
    eq(await do(s.pty.kill(handle.pid)), False)


@check()
async def control_c_interrupts(s):
    out = []
    path = await fresh_dir(s)
    handle = await create(s, out, cwd=path)
    await do(s.pty.send_stdin(handle.pid, b'sh -c ": >started; exec sleep 60"\n'))
    await eventually(lambda: s.files.exists(f'{path}/started'), 'the command started')
    await do(s.pty.send_stdin(handle.pid, b'\x03'))
    await do(s.pty.send_stdin(handle.pid, b'echo "<$?>"; exit 0\n'))
    eq((await end(handle, out)).exit_code, 0)
    has(out, '<130>')


@check()
async def connect(s):
    first, second = [], []
    handle = await create(s, first, timeout=0)
    await do(handle.disconnect())
    other = await attach(s, handle.pid, second)
    await do(s.pty.send_stdin(handle.pid, b'echo "<$((40+2))>"; exit\n'))
    eq((await end(other, second)).exit_code, 0)
    has(second, '<42>')


@check()
async def two_readers(s):
    first, second = [], []
    handle = await create(s, first)
    other = await attach(s, handle.pid, second)
    await do(s.pty.send_stdin(handle.pid, b'echo "<$((40+3))>"; exit\n'))
    await end(other, second)
    await end(handle, first)
    has(first, '<43>')
    has(second, '<43>')


@check()
async def stream_input(s):
    out = []
    handle = await create(s, out)
    if ASYNC:
        async with s.pty.stream_input(handle.pid) as stream:
            await stream.send(b'echo "<$((1+1))>"\n')
            await stream.send('exit\n')
    else:
        s.pty.stream_input(handle.pid, iter([b'echo "<$((1+1))>"\n', 'exit\n']))
    eq((await end(handle, out)).exit_code, 0)
    has(out, '<2>')


@check()
async def timeout(s):
    out = []
    handle = await create(s, out, timeout=2 * SCALE)
    await raises(TimeoutException, lambda: end(handle, out))

    async def gone():
        return handle.pid not in [process.pid for process in await do(s.commands.list())]

    await eventually(gone, 'the terminal gone from the list', 5)


@check()
async def list_shows_it(s):
    out = []
    handle = await create(s, out, cwd='/tmp')
    [seen] = [p for p in await do(s.commands.list()) if p.pid == handle.pid]
    eq((seen.cmd, seen.args, seen.cwd), ('/bin/bash', ['-i', '-l'], '/tmp'))
    await do(s.pty.kill(handle.pid))


@check()
async def directory_missing(s):
    await raises(InvalidArgumentException, lambda: create(s, [], cwd='/no/such'), '/no/such')


@check()
async def nobody_there(s):
    await raises(NotFoundException, lambda: s.pty.send_stdin(NOBODY, b'x'))
    await raises(NotFoundException, lambda: s.pty.resize(NOBODY, PtySize(rows=1, cols=1)))
    await raises(NotFoundException, lambda: attach(s, NOBODY, []))
    eq(await do(s.pty.kill(NOBODY)), False)
