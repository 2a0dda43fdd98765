# SPDX-License-Identifier: Apache-2.0
"""The control plane: create, info, list, kill, environment, metrics, network, hosts and ports."""
import datetime
import re
import uuid

from e2b import CommandExitException, SandboxQuery, SandboxState

from kit import SHARED, Sandbox, check, do, eq, eventually, new_sandbox, ok, raises, run
from web import get_through


def mark():
    return {'run': uuid.uuid4().hex}


async def pages(**options):
    """All pages of a listing, as lists of ids."""
    paginator, seen = Sandbox.list(**options), []
    while paginator.has_next:
        seen.append([info.sandbox_id for info in await do(paginator.next_items())])
        ok(len(seen) < 20, 'an end of the pages', seen)
    return seen


@check(on='gateway')
async def create_answers_what_info_says():
    metadata = {**mark(), 'odd key &=%': 'ž 1+1=2&x'}
    sandbox = await new_sandbox(timeout=200, metadata=metadata)
    ok(re.fullmatch('[a-z0-9]+', sandbox.sandbox_id), 'an id of a-z0-9', sandbox.sandbox_id)
    info = await do(sandbox.get_info())
    eq((info.sandbox_id, info.state, info.metadata), (sandbox.sandbox_id, SandboxState.RUNNING, metadata))
    eq((info.name or info.template_id, info.envd_version), ('base', str(sandbox._envd_version)))
    now = datetime.datetime.now(datetime.timezone.utc)
    ok(abs((now - info.started_at).total_seconds()) < 30, 'a start just now', info.started_at)
    ok(abs((info.end_at - info.started_at).total_seconds() - 200) < 10, 'an end after 200 s', info.end_at)
    eq(info, await do(Sandbox.get_info(sandbox.sandbox_id)), 'by id')


@check(on='gateway')
async def default_timeout():
    sandbox = await new_sandbox(timeout=None)
    info = await do(sandbox.get_info())
    ok(abs((info.end_at - info.started_at).total_seconds() - 300) < 10, '300 s', info.end_at - info.started_at)


@check(on='gateway')
async def connect_by_id():
    first = await new_sandbox()
    await do(first.files.write('here.txt', 'same'))
    second = await do(Sandbox.connect(first.sandbox_id))
    eq((second.sandbox_id, await do(second.files.read('here.txt'))), (first.sandbox_id, 'same'))


@check(on='gateway')
async def connect_never_shortens():
    sandbox = await new_sandbox(timeout=200)
    before = (await do(sandbox.get_info())).end_at
    await do(Sandbox.connect(sandbox.sandbox_id, timeout=10))
    after = (await do(sandbox.get_info())).end_at
    ok(after >= before, f'{before} or later', after)
    await do(sandbox.connect(timeout=500))
    after = (await do(sandbox.get_info())).end_at
    ok((after - before).total_seconds() > 250, '300 s more', after - before)


@check(on='gateway')
async def sandboxes_are_apart():
    first, second = await new_sandbox(), await new_sandbox()
    await do(first.files.write('only-here.txt', 'x'))
    eq(await do(second.files.exists('only-here.txt')), False)
    handle = await do(first.commands.run('sleep 50', background=True))
    eq([p.args for p in await do(second.commands.list())], [])
    await do(handle.kill())


@check(on='gateway')
async def list_by_metadata():
    common, own = mark(), mark()
    first = await new_sandbox(metadata={'common': common['run'], 'a b': 'c&d=ž'})
    second = await new_sandbox(metadata={'common': common['run'], 'own': own['run']})
    both = {first.sandbox_id, second.sandbox_id}
    found = await pages(query=SandboxQuery(metadata={'common': common['run']}))
    eq({i for page in found for i in page}, both)
    for metadata, expected in (({'common': common['run'], 'a b': 'c&d=ž'}, [first.sandbox_id]),
                               ({'own': own['run']}, [second.sandbox_id]),
                               ({'own': own['run'], 'a b': 'c&d=ž'}, [])):
        eq(sum(await pages(query=SandboxQuery(metadata=metadata)), []), expected, str(metadata))
    everything = sum(await pages(), [])
    ok(both <= set(everything), 'both among all', everything)


@check(on='gateway')
async def list_in_pages():
    metadata = mark()
    ids = [(await new_sandbox(metadata=metadata)).sandbox_id for _ in range(3)]
    query = SandboxQuery(metadata=metadata)
    eq(await pages(query=query), [ids[::-1]], 'the newest first')
    eq(await pages(query=query, order='asc'), [ids])
    seen = await pages(query=query, limit=1)
    eq([page for page in seen if page], [[i] for i in ids[::-1]], 'one a page')
    seen = await pages(query=query, limit=2, order='asc')
    eq([page for page in seen if page], [ids[:2], ids[2:]], 'two a page')


@check(on='gateway')
async def list_by_state_and_time():
    metadata = mark()
    running, paused = await new_sandbox(metadata=metadata), await new_sandbox(metadata=metadata)
    await do(paused.pause())
    for state, expected in (([SandboxState.RUNNING], [running.sandbox_id]),
                            ([SandboxState.PAUSED], [paused.sandbox_id]),
                            ([SandboxState.RUNNING, SandboxState.PAUSED], [paused.sandbox_id, running.sandbox_id])):
        eq(sum(await pages(query=SandboxQuery(metadata=metadata, state=state)), []), expected, str(state))
    later = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)
    eq(sum(await pages(query=SandboxQuery(metadata=metadata, started_after=later)), []), [])
    earlier = later - datetime.timedelta(hours=2)
    eq(len(sum(await pages(query=SandboxQuery(metadata=metadata, started_after=earlier)), [])), 2)


@check(on='gateway')
async def kill_is_true_once():
    sandbox = await new_sandbox()
    eq(await do(sandbox.is_running()), True)
    eq(await do(sandbox.kill()), True)
    eq(await do(sandbox.kill()), False)
    eq(await do(Sandbox.kill(sandbox.sandbox_id)), False)
    eq(await do(sandbox.is_running()), False)


@check(on='gateway')
async def environment_of_the_session():
    sandbox = await new_sandbox(envs={'SESSION': 'one two=ž', 'BOTH': 'session'})
    command = 'printf "%s|%s|%s" "$SESSION" "$BOTH" "$CALL"'
    eq(await run(sandbox, command), 'one two=ž|session|')
    eq(await run(sandbox, command, envs={'BOTH': 'call', 'CALL': 'x'}), 'one two=ž|call|x', "the call's wins")
    eq(await run(sandbox, command), 'one two=ž|session|', 'and is not kept')
    eq(await run(sandbox, command, user='root'), 'one two=ž|session|', 'as root')


@check(on='gateway')
async def nothing_is_left_for_the_next_session():
    # Without namespaces sandboxes share the machine's temporary places.
    places = '~ /tmp /dev/shm' if SHARED['user'] == 'user' else '~'
    mark_ = uuid.uuid4().hex
    first = await new_sandbox(envs={'SECRET': 'of the first'})
    leave = (f'for place in {places}; do touch $place/{mark_}; done; '
             f'setsid sh -c "sleep 60; : {mark_}" >/dev/null 2>&1 &')
    await do(first.commands.run(leave))
    eq(await do(first.kill()), True)
    look = f'echo ${{SECRET-none}}; ls {places} | grep {mark_}; pgrep -f "[s]leep 60; : {mark_}"; true'
    for _ in range(3):  # some, so that one that was used before is likely among them
        eq(await run(await new_sandbox(), look), 'none\n')


@check(on='gateway')
async def metrics():
    sandbox = await new_sandbox()
    await do(sandbox.commands.run('head -c 10000000 /dev/zero >/dev/null'))

    async def some():
        return await do(sandbox.get_metrics())

    metric = (await eventually(some, 'a metric', 15))[-1]
    ok(metric.cpu_count >= 1 and 0 <= metric.cpu_used_pct <= 100 * metric.cpu_count, 'a sound CPU figure', metric)
    ok(0 < metric.mem_used <= metric.mem_total and 0 < metric.disk_used <= metric.disk_total, 'sound sizes', metric)


@check(on='gateway')
async def network_is_taken_and_shown():
    sandbox = await new_sandbox(allow_internet_access=False)
    eq((await do(sandbox.get_info())).allow_internet_access, False)
    await do(sandbox.update_network({'deny_out': ['10.0.0.0/8']}))
    eq((await do(sandbox.get_info())).state, SandboxState.RUNNING)


@check(on='gateway')
async def port_of_the_sandbox():
    # A server in the sandbox that picks its port itself, says it in a file, and is reached by the host name alone.
    sandbox = await new_sandbox()
    script = ('import http.server as h\ns = h.HTTPServer(("127.0.0.1", 0), h.SimpleHTTPRequestHandler)\n'
              'open("port", "w").write(str(s.server_port) + "\\n")\ns.serve_forever()\n')
    await do(sandbox.files.write('serve.py', script))
    await do(sandbox.files.write('hello.txt', 'hello from inside'))
    handle = await do(sandbox.commands.run('python3 serve.py', background=True, timeout=0))

    async def port():
        text = await do(sandbox.files.read('port')) if await do(sandbox.files.exists('port')) else ''
        return int(text) if text.endswith('\n') else 0

    host = sandbox.get_host(await eventually(port, "the server's port"))
    eq(get_through(host, '/hello.txt'), (200, 'hello from inside'))
    await do(handle.kill())
    await raises(CommandExitException, handle.wait)
    status, body = get_through(host, '/hello.txt')
    eq(status, 502)
    ok('port is not open' in body, 'that the port is not open', body)


@check(on='gateway')
async def same_version_everywhere():
    sandbox = await new_sandbox()
    [listed] = [i for i in await do(Sandbox.list(limit=100).next_items()) if i.sandbox_id == sandbox.sandbox_id]
    eq((listed.envd_version, (await do(sandbox.get_info())).envd_version), (str(sandbox._envd_version),) * 2)
