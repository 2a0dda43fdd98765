# SPDX-License-Identifier: Apache-2.0
"""Commands in the background: list, connect, kill, disconnect."""
from e2b import CommandExitException, NotFoundException

from kit import SHARED, check, do, eq, eventually, fresh_dir, parallel, raises

NOBODY = 4000000  # above any pid_max that is set by default


async def listed(sandbox, pid):
    return [process for process in await do(sandbox.commands.list()) if process.pid == pid]


async def waiting(sandbox, path, then):
    """A command that goes on with `then` once a file `go` is there."""
    script = f'while [ ! -e go ]; do sleep 0.02; done; {then}'
    return await do(sandbox.commands.run(script, background=True, cwd=path))


@check()
async def list_shows_what_was_asked(s):
    handle = await do(s.commands.run('sleep 33', background=True, envs={'A': 'b'}, cwd='/tmp'))
    [seen] = await listed(s, handle.pid)
    eq((seen.cmd, seen.args, seen.envs, seen.cwd, seen.tag),
       ('/bin/bash', ['-l', '-c', 'sleep 33'], {'A': 'b'}, '/tmp', None))
    await do(handle.kill())


@check()
async def listed_pids_can_be_connected_and_killed(s):
    handle = await do(s.commands.run('sleep 34', background=True))
    [seen] = [p for p in await do(s.commands.list()) if p.args[-1] == 'sleep 34' and p.pid == handle.pid]
    other = await do(s.commands.connect(seen.pid))
    eq(other.pid, handle.pid)
    eq(await do(s.commands.kill(seen.pid)), True)
    for each in (handle, other):
        error = await raises(CommandExitException, each.wait)
        eq((error.exit_code, error.error), (-1, 'signal: killed'))
    eq(await listed(s, handle.pid), [])


@check()
async def kill_is_true_once(s):
    handle = await do(s.commands.run('sleep 35', background=True))
    eq(await do(handle.kill()), True)
    await raises(CommandExitException, handle.wait)
    eq(await do(s.commands.kill(handle.pid)), False)


@check()
async def kill_reaches_the_children(s):
    path = await fresh_dir(s)
    handle = await do(s.commands.run('sleep 36 & echo $! >child; wait', background=True, cwd=path))
    await eventually(lambda: s.files.exists(f'{path}/child'), 'the child started')
    child = await eventually(lambda: s.files.read(f'{path}/child'), "the child's pid")
    await do(handle.kill())
    await raises(CommandExitException, handle.wait)
    probe = f'kill -0 {child.strip()} 2>/dev/null || echo gone'

    async def gone():
        return (await do(s.commands.run(probe))).stdout == 'gone\n'

    await eventually(gone, 'the child dead', 5)


@check()
async def connect_gets_what_follows(s):
    path = await fresh_dir(s)
    handle = await waiting(s, path, 'echo late; exit 3')
    other = await do(s.commands.connect(handle.pid))
    await do(s.files.write(f'{path}/go', ''))
    for each in (other, handle):
        error = await raises(CommandExitException, each.wait)
        eq((error.stdout, error.exit_code), ('late\n', 3))


@check()
async def disconnect_leaves_it_running(s):
    path = await fresh_dir(s)
    handle = await waiting(s, path, 'echo done')
    await do(handle.disconnect())
    other = await do(s.commands.connect(handle.pid))
    await do(s.files.write(f'{path}/go', ''))
    eq((await do(other.wait())).stdout, 'done\n')


@check()
async def connect_after_the_end(s):
    handle = await do(s.commands.run('exit 4', background=True))
    await raises(CommandExitException, handle.wait)
    error = await raises(CommandExitException, (await do(s.commands.connect(handle.pid))).wait)
    eq(error.exit_code, 4)


@check()
async def nobody_there(s):
    await raises(NotFoundException, lambda: s.commands.connect(NOBODY))
    eq(await do(s.commands.kill(NOBODY)), False)


@check()
async def many_in_the_background(s):
    path = await fresh_dir(s)
    script = 'while [ ! -e go ]; do sleep 1; done; echo {}'
    starts = [lambda i=i: s.commands.run(script.format(i), background=True, cwd=path) for i in range(25)]
    handles = await parallel(*starts)
    eq(len({handle.pid for handle in handles}), 25)
    await do(s.files.write(f'{path}/go', ''))
    results = await parallel(*[handle.wait for handle in handles])
    eq([result.stdout for result in results], [f'{i}\n' for i in range(25)])


@check()
async def user_of_a_background_command(s):
    handle = await do(s.commands.run('id -un', background=True, user='root'))
    eq((await do(handle.wait())).stdout, 'root\n')
    handle = await do(s.commands.run('id -un', background=True))
    eq((await do(handle.wait())).stdout, SHARED['user'] + '\n')
