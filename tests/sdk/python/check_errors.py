# SPDX-License-Identifier: Apache-2.0
"""Which class says which failure, for what celld itself answers."""
from e2b import (AuthenticationException, FileNotFoundException, InvalidArgumentException, NotEnoughSpaceException,
                 TimeoutException)

from kit import ASYNC, check, do, fresh_dir, raises


def watch(sandbox, path):
    return sandbox.files.watch_dir(path, **({'on_event': print} if ASYNC else {}))


@check()
async def nothing_there(s):
    path = await fresh_dir(s) + '/no'
    await raises(FileNotFoundException, lambda: s.files.read(path), path)
    await raises(FileNotFoundException, lambda: s.files.read(path, format='stream'))
    await raises(FileNotFoundException, lambda: s.files.list(path))
    await raises(FileNotFoundException, lambda: s.files.get_info(path))
    await raises(FileNotFoundException, lambda: s.files.rename(path, path + 'x'))
    await raises(FileNotFoundException, lambda: watch(s, path))


@check()
async def directory_for_a_file(s):
    path = await fresh_dir(s)
    await raises(InvalidArgumentException, lambda: s.files.read(path))
    await raises(InvalidArgumentException, lambda: s.files.write(path, 'x'))
    await raises(InvalidArgumentException, lambda: s.files.write(path, b'x', use_octet_stream=True))


@check()
async def file_for_a_directory(s):
    path = await fresh_dir(s) + '/f'
    await do(s.files.write(path, 'x'))
    await raises(InvalidArgumentException, lambda: s.files.list(path))
    await raises(InvalidArgumentException, lambda: s.files.make_dir(path))
    await raises(InvalidArgumentException, lambda: watch(s, path))


@check()
async def depth_of_nothing(s):
    path = await fresh_dir(s)
    await raises(InvalidArgumentException, lambda: s.files.list(path, depth=0))


@check()
async def unknown_user(s):
    path = await fresh_dir(s)
    await raises(AuthenticationException, lambda: s.files.read(f'{path}/f', user='no-such-user'))
    await raises(AuthenticationException, lambda: s.files.write(f'{path}/f', 'x', user='no-such-user'))
    await raises(AuthenticationException, lambda: s.files.list(path, user='no-such-user'))


@check()
async def bad_metadata(s):
    path = await fresh_dir(s)
    await raises(InvalidArgumentException, lambda: s.files.write(f'{path}/f', 'x', metadata={'k': 'v' * 5000}))


@check()
async def no_space(s):
    await raises(NotEnoughSpaceException, lambda: s.files.write('/dev/full', 'x', user='root'))


@check()
async def request_timeout(s):
    # Nobody reads what is sent, so that at some point the answer does not come.
    handle = await do(s.commands.run('sleep 40', background=True, stdin=True))
    data = b'x' * 1000000
    try:
        await raises(TimeoutException, lambda: fill(s, handle.pid, data))
    finally:
        await do(handle.kill())


async def fill(sandbox, pid, data):
    for _ in range(64):
        await do(sandbox.commands.send_stdin(pid, data, request_timeout=1))
