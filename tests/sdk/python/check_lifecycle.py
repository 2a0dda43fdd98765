# SPDX-License-Identifier: Apache-2.0
"""Timeouts, pause, resume: what stays, what ends, and what the same client object says meanwhile."""
import asyncio
import datetime

from e2b import CommandExitException, SandboxNotFoundException, SandboxNotRunningException, SandboxState

from kit import Sandbox, check, do, eq, eventually, new_sandbox, ok, raises, run


async def state(sandbox):
    return (await do(sandbox.get_info())).state


async def paused(sandbox):
    async def probe():
        return await state(sandbox) == SandboxState.PAUSED

    await eventually(probe, 'the state paused')


async def not_found(sandbox):
    async def probe():
        try:
            return not await do(sandbox.get_info())
        except SandboxNotFoundException:
            return True

    await eventually(probe, 'the sandbox gone')


@check(on='gateway')
async def set_timeout():
    sandbox = await new_sandbox(timeout=100)
    for seconds, call in ((500, lambda: sandbox.set_timeout(500)),
                          (50, lambda: Sandbox.set_timeout(sandbox.sandbox_id, 50))):
        await do(call())
        left = (await do(sandbox.get_info())).end_at - datetime.datetime.now(datetime.timezone.utc)
        ok(abs(left.total_seconds() - seconds) < 10, f'{seconds} s left', left)


@check(on='gateway')
async def timeout_ends_it():
    sandbox = await new_sandbox(timeout=1)
    await not_found(sandbox)
    eq(await do(sandbox.is_running()), False)
    await raises(SandboxNotRunningException, lambda: sandbox.commands.run('true'))


@check(on='gateway')
async def timeout_set_to_nothing_ends_it():
    sandbox = await new_sandbox()
    await do(sandbox.set_timeout(0))
    await not_found(sandbox)


@check(on='gateway')
async def timeout_ends_a_running_command():
    sandbox = await new_sandbox()
    handle = await do(sandbox.commands.run('sleep 60', background=True))
    await do(sandbox.set_timeout(1))
    await raises(SandboxNotRunningException, handle.wait)


@check(on='gateway')
async def pause_and_connect():
    sandbox = await new_sandbox(metadata={'kept': 'yes'}, envs={'KEPT': 'yes'})
    await do(sandbox.files.write('kept.txt', 'kept'))
    handle = await do(sandbox.commands.run('sleep 70', background=True, timeout=0))
    await do(handle.disconnect())
    eq(await do(sandbox.pause()), True)
    eq(await do(sandbox.pause()), False, 'once more')
    eq(await state(sandbox), SandboxState.PAUSED)
    eq(await do(sandbox.is_running()), False)
    await raises(SandboxNotRunningException, lambda: sandbox.commands.run('true'))
    await raises(SandboxNotRunningException, lambda: sandbox.files.read('kept.txt'))
    await do(sandbox.connect(timeout=100))
    eq(await state(sandbox), SandboxState.RUNNING)
    eq(await do(sandbox.is_running()), True)
    eq(await do(sandbox.files.read('kept.txt')), 'kept', 'the same object after the pause')
    eq(await run(sandbox, 'echo $KEPT'), 'yes\n')
    eq((await do(sandbox.get_info())).metadata, {'kept': 'yes'})
    ok(handle.pid in [p.pid for p in await do(sandbox.commands.list())], 'the command still there', 'none')
    eq(await do(sandbox.commands.kill(handle.pid)), True)


async def ticks(sandbox):
    return [float(line) for line in (await do(sandbox.files.read('ticks'))).splitlines()]


@check(on='gateway')
async def pause_stops_what_runs_inside():
    sandbox = await new_sandbox()
    script = 'while read up idle </proc/uptime; do echo $up >>ticks; sleep 0.05; done'
    await do((await do(sandbox.commands.run(script, background=True, timeout=0))).disconnect())
    await eventually(lambda: sandbox.files.exists('ticks'), 'a first tick')
    await do(sandbox.pause())
    await asyncio.sleep(1)  # that it does not run for that long is the matter here
    await do(sandbox.connect())
    paused_at = (await ticks(sandbox))[-1]

    async def on():
        return (await ticks(sandbox))[-1] > paused_at

    await eventually(on, 'ticks after the pause')
    seen = await ticks(sandbox)
    longest = max(later - earlier for earlier, later in zip(seen, seen[1:]))
    ok(longest >= 0.9, 'a gap of a second', longest)


@check(on='gateway')
async def pause_of_the_files_alone():
    sandbox = await new_sandbox()
    await do(sandbox.files.write('kept.txt', 'kept'))
    handle = await do(sandbox.commands.run('sleep 71', background=True, timeout=0))
    await do(handle.disconnect())
    eq(await do(sandbox.pause(mode='filesystem')), True)
    eq(await state(sandbox), SandboxState.PAUSED)
    await do(sandbox.connect())
    eq(await do(sandbox.files.read('kept.txt')), 'kept')
    eq([p.pid for p in await do(sandbox.commands.list())], [], 'no command is left')


@check(on='gateway')
async def reboot_on_resume():
    sandbox = await new_sandbox()
    await do(sandbox.files.write('kept.txt', 'kept'))
    await do((await do(sandbox.commands.run('sleep 72', background=True, timeout=0))).disconnect())
    await do(sandbox.pause())
    await do(sandbox.connect(on_resume='reboot'))
    eq(await do(sandbox.files.read('kept.txt')), 'kept')
    eq([p.pid for p in await do(sandbox.commands.list())], [], 'no command is left')


@check(on='gateway')
async def pause_cuts_what_runs():
    sandbox = await new_sandbox()
    handle = await do(sandbox.commands.run('sleep 73; exit 5', background=True, timeout=0))
    await do(sandbox.pause())
    await raises(SandboxNotRunningException, handle.wait)
    await do(sandbox.connect())
    again = await do(sandbox.commands.connect(handle.pid))
    await do(again.kill())
    await raises(CommandExitException, again.wait)


@check(on='gateway')
async def kill_of_a_paused_one():
    sandbox = await new_sandbox()
    await do(sandbox.pause())
    eq(await do(sandbox.kill()), True)
    await not_found(sandbox)


@check(on='gateway')
async def connect_by_id_resumes():
    sandbox = await new_sandbox()
    await do(sandbox.pause())
    other = await do(Sandbox.connect(sandbox.sandbox_id, timeout=100))
    eq(await run(other, 'echo up'), 'up\n')
    eq(await run(sandbox, 'echo up'), 'up\n', 'and through the old object')


@check(on='gateway')
async def timeout_pauses_where_asked():
    sandbox = await new_sandbox(timeout=1, lifecycle={'on_timeout': 'pause'})
    info = await do(sandbox.get_info())
    eq(info.lifecycle, {'on_timeout': 'pause', 'auto_resume': False})
    await paused(sandbox)
    eq(await do(sandbox.is_running()), False)
    await raises(SandboxNotRunningException, lambda: sandbox.commands.run('true'))
    await do(sandbox.connect(timeout=100))
    eq(await run(sandbox, 'echo up'), 'up\n')


@check(on='gateway')
async def any_request_resumes_where_asked():
    sandbox = await new_sandbox(lifecycle={'on_timeout': 'pause', 'auto_resume': True})
    await do(sandbox.files.write('f', 'x'))
    for name, use in (('a command', lambda: run(sandbox, 'echo up')), ('a file', lambda: sandbox.files.read('f')),
                      ('a list', lambda: sandbox.files.list('.')), ('the health', lambda: sandbox.is_running())):
        await do(sandbox.pause())
        eq(await state(sandbox), SandboxState.PAUSED, f'before {name}')
        ok(await do(use()), f'an answer from {name}', 'none')
        eq(await state(sandbox), SandboxState.RUNNING, f'after {name}')


@check(on='gateway')
async def timeout_pauses_and_use_resumes():
    sandbox = await new_sandbox(timeout=1, lifecycle={'on_timeout': 'pause', 'auto_resume': True})
    await paused(sandbox)
    eq(await run(sandbox, 'echo up'), 'up\n')
    left = (await do(sandbox.get_info())).end_at - datetime.datetime.now(datetime.timezone.utc)
    ok(left.total_seconds() > 250, 'at least 300 s more', left)


@check(on='gateway')
async def paused_has_no_timeout_to_set():
    sandbox = await new_sandbox()
    await do(sandbox.pause())
    await raises(SandboxNotFoundException, lambda: sandbox.set_timeout(100))
