# SPDX-License-Identifier: Apache-2.0
"""Standard input: send, close, stream."""
import asyncio
import time

from e2b import CommandExitException, NotFoundException, SandboxException

from kit import ASYNC, check, do, eq, eventually, fresh_dir, raises

NOBODY = 4000000


async def cat(sandbox, command='cat', **options):
    return await do(sandbox.commands.run(command, background=True, stdin=True, **options))


@check()
async def text_bytes_and_nothing(s):
    handle = await cat(s)
    await do(s.commands.send_stdin(handle.pid, 'hello'))
    await do(handle.send_stdin(b' \xc5\xbe\n'))
    await do(s.commands.send_stdin(handle.pid, ''))
    await do(s.commands.close_stdin(handle.pid))
    eq((await do(handle.wait())).stdout, 'hello ž\n')


@check()
async def control_characters(s):
    text = '!@#$%^&*()_+\0\t\x04\x03\'"\\ 日本\n'
    handle = await cat(s)
    await do(handle.send_stdin(text))
    await do(handle.close_stdin())
    eq((await do(handle.wait())).stdout, text)


@check()
async def arrives_at_once(s):
    path = await fresh_dir(s)
    handle = await cat(s, 'head -n 1 >first; cat', cwd=path)
    await do(handle.send_stdin('one\n'))

    async def first():
        return await do(s.files.exists(f'{path}/first')) and await do(s.files.read(f'{path}/first')) == 'one\n'

    await eventually(first, 'the line while stdin is open')
    await do(handle.send_stdin('two\n'))
    await do(handle.close_stdin())
    eq((await do(handle.wait())).stdout, 'two\n')


@check()
async def large(s):
    handle = await cat(s, 'wc -c')
    for _ in range(4):
        await do(s.commands.send_stdin(handle.pid, b'x' * 1000000))
    await do(handle.close_stdin())
    eq((await do(handle.wait())).stdout.strip(), '4000000')


@check()
async def off_unless_asked(s):
    error = await raises(CommandExitException, lambda: s.commands.run('read x; exit $?'))
    eq(error.exit_code, 1)
    handle = await do(s.commands.run('sleep 37', background=True))
    await raises(SandboxException, lambda: s.commands.send_stdin(handle.pid, 'x'))
    await do(handle.kill())


@check()
async def nobody_there(s):
    await raises(NotFoundException, lambda: s.commands.send_stdin(NOBODY, 'x'))
    await raises(NotFoundException, lambda: s.commands.close_stdin(NOBODY))


@check()
async def after_the_end(s):
    handle = await cat(s, 'true')
    await do(handle.wait())
    await raises(NotFoundException, lambda: s.commands.send_stdin(handle.pid, 'x'))


@check()
async def stream(s):
    handle = await cat(s)
    lines = [f'line {i}\n' for i in range(5)]
    if ASYNC:
        async with s.commands.stream_input(handle.pid) as stream_:
            for line in lines:
                await stream_.send(line)
    else:
        s.commands.stream_input(handle.pid, iter(lines))
    await do(handle.close_stdin())
    eq((await do(handle.wait())).stdout, ''.join(lines))


@check()
async def stream_arrives_while_open(s):
    path = await fresh_dir(s)
    handle = await cat(s, 'head -n 1 >first; cat >/dev/null', cwd=path)

    async def first():
        return await do(s.files.exists(f'{path}/first')) and await do(s.files.read(f'{path}/first')) == 'one\n'

    if ASYNC:
        async with s.commands.stream_input(handle.pid) as stream_:
            await stream_.send('one\n')
            await eventually(first, 'the line while the stream is open')
    else:
        def lines():
            yield 'one\n'
            end = time.monotonic() + 10
            while not (s.files.exists(f'{path}/first') and s.files.read(f'{path}/first') == 'one\n'):
                if time.monotonic() > end:
                    raise AssertionError('expected the line while the stream is open, saw none in 10 s')
                time.sleep(0.05)
        s.commands.stream_input(handle.pid, lines())
        await first()
    await do(handle.close_stdin())
    eq((await do(handle.wait())).exit_code, 0)


@check(client='async')
async def stream_keepalive(s):
    handle = await cat(s)
    async with s.commands.stream_input(handle.pid) as stream_:
        stream_._keepalive_interval = 0.02
        for i in range(3):
            await stream_.send(f'{i}\n')
            await asyncio.sleep(0.1)
    await do(handle.close_stdin())
    eq((await do(handle.wait())).stdout, '0\n1\n2\n')


@check()
async def stream_to_nobody(s):
    if ASYNC:
        await raises(NotFoundException, lambda: s.commands.stream_input(NOBODY).close())
    else:
        await raises(NotFoundException, lambda: s.commands.stream_input(NOBODY, ['x']))
