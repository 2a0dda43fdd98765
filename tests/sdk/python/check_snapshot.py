# SPDX-License-Identifier: Apache-2.0
"""Snapshots and forks."""
import uuid

from e2b import SandboxException

from kit import Sandbox, check, do, eq, keep, new_sandbox, ok, raises, run


async def snapshots(**options):
    paginator, seen = Sandbox.list_snapshots(**options), []
    while paginator.has_next:
        seen += [info.snapshot_id for info in await do(paginator.next_items())]
    return seen


@check(on='gateway')
async def create_from_a_snapshot():
    sandbox = await new_sandbox()
    await do(sandbox.files.write('deep/kept.txt', 'as it was'))
    await do(sandbox.commands.run('chmod 700 deep; ln -s deep/kept.txt link; head -c 3000000 /dev/zero >big'))
    snapshot = await do(sandbox.create_snapshot())
    try:
        await do(sandbox.files.write('deep/kept.txt', 'changed later'))
        eq(await do(sandbox.is_running()), True, 'the source goes on')
        twins = [await new_sandbox(snapshot.snapshot_id) for _ in range(2)]
        for twin in twins:
            eq(await do(twin.files.read('link')), 'as it was')
            user = await run(sandbox, 'id -un')
            eq(await run(twin, 'stat -c %a deep; stat -c %s big; id -un'), f'700\n3000000\n{user}')
        await do(twins[0].files.write('link', 'mine'))
        eq(await do(twins[1].files.read('link')), 'as it was', 'the other one')
        await do(sandbox.kill())
        eq(await do((await new_sandbox(snapshot.snapshot_id)).files.read('link')), 'as it was', 'without its source')
    finally:
        await do(Sandbox.delete_snapshot(snapshot.snapshot_id))


@check(on='gateway')
async def list_and_delete():
    sandbox = await new_sandbox()
    ids = [(await do(sandbox.create_snapshot())).snapshot_id for _ in range(2)]
    eq(len(set(ids)), 2)
    eq(sorted(await snapshots(sandbox_id=sandbox.sandbox_id)), sorted(ids))
    eq(sorted(await snapshots(sandbox_id=sandbox.sandbox_id, limit=1)), sorted(ids), 'one a page')
    ok(set(ids) <= set(await snapshots()), 'both among all', ids)
    eq(await do(Sandbox.delete_snapshot(ids[0])), True)
    eq(await do(Sandbox.delete_snapshot(ids[0])), False, 'once more')
    eq(await snapshots(sandbox_id=sandbox.sandbox_id), ids[1:])
    error = await raises(SandboxException, lambda: Sandbox.create(ids[0]))
    ok(str(error).startswith('404'), 'a 404', str(error))
    eq(await do(Sandbox.delete_snapshot(ids[1])), True)


@check(on='gateway')
async def by_name():
    sandbox = await new_sandbox()
    await do(sandbox.files.write('f', 'named'))
    name = 'snap-' + uuid.uuid4().hex[:12]
    snapshot = await do(sandbox.create_snapshot(name=name))
    ok(any(name in each for each in snapshot.names), f'a name with {name}', snapshot.names)
    eq(await snapshots(name=name), [snapshot.snapshot_id])
    eq(await do((await new_sandbox(name)).files.read('f')), 'named')
    eq(await do(Sandbox.delete_snapshot(snapshot.snapshot_id)), True)


@check(on='gateway')
async def of_a_paused_one():
    sandbox = await new_sandbox()
    await do(sandbox.files.write('f', 'x'))
    await do(sandbox.pause())
    try:
        snapshot = await do(sandbox.create_snapshot())
    except SandboxException as error:  # a clear refusal is as good
        ok(error.status_code in (404, 409), 'a 404 or 409', str(error))
        return
    eq(await do((await new_sandbox(snapshot.snapshot_id)).files.read('f')), 'x')
    await do(Sandbox.delete_snapshot(snapshot.snapshot_id))


@check(on='gateway')
async def fork_answers_for_each():
    # Whoever cannot copy running memory says so for each fork, and the source goes on.
    sandbox = await new_sandbox()
    await do(sandbox.files.write('f', 'source'))
    forks = await do(sandbox.fork(count=2, timeout=60))
    eq(len(forks), 2)
    for fork in forks:
        if isinstance(fork, Exception):
            ok(isinstance(fork, SandboxException) and str(fork), 'a SandboxException that says why', repr(fork))
        else:
            eq(await do(keep(fork).files.read('f')), 'source')
    eq(await run(sandbox, 'cat f'), 'source')
