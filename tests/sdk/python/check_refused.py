# SPDX-License-Identifier: Apache-2.0
"""Which class says which failure, for what the control plane and the proxy answer."""
import os

from e2b import (AuthenticationException, InvalidArgumentException, RateLimitException, SandboxException,
                 SandboxNotFoundException, SandboxNotRunningException, SandboxUnreachableException)

from kit import Sandbox, check, do, eq, eventually, joined, keep, new_sandbox, ok, raises
from web import get_api, list_processes, to_sandbox

UNKNOWN = 'i0000000000000000000a'


@check(on='gateway')
async def unknown_sandbox():
    for call in (Sandbox.get_info, Sandbox.connect, Sandbox.pause, Sandbox.get_metrics, Sandbox.create_snapshot,
                 Sandbox.fork, lambda i: Sandbox.set_timeout(i, 10), lambda i: Sandbox.update_network(i, {})):
        error = await raises(SandboxNotFoundException, lambda: call(UNKNOWN))
        ok(UNKNOWN in str(error), 'a message with the id', str(error))
    eq(await do(Sandbox.kill(UNKNOWN)), False)
    eq(await do(Sandbox.delete_snapshot(UNKNOWN)), False)


@check(on='gateway')
async def unknown_template():
    error = await raises(SandboxException, lambda: Sandbox.create('no-such-template'))
    ok(str(error).startswith('404') and 'no-such-template' in str(error), 'a 404 that names it', str(error))


@check(on='gateway')
async def wrong_key():
    await raises(AuthenticationException, lambda: Sandbox.create(api_key='wrong'))
    await raises(AuthenticationException, lambda: Sandbox.get_info(UNKNOWN, api_key='wrong'))
    await raises(AuthenticationException, lambda: Sandbox.list(api_key='wrong').next_items())
    await raises(AuthenticationException, lambda: Sandbox.kill(UNKNOWN, api_key='wrong'))


@check(on='gateway')
async def no_key_at_all():
    # The client asks for a key before it sends anything; the gateway has to refuse one who does not.
    status, body = get_api('/v2/sandboxes')
    eq((status, body['code']), (401, 401))
    ok(body['message'], 'a message', body)


@check(on='gateway')
async def bad_arguments():
    for options in ({'timeout': 0}, {'timeout': -5}):
        error = await raises(SandboxException, lambda: Sandbox.create(**options))
        ok(str(error).startswith('400'), f'a 400 for {options}', str(error))
    await raises(InvalidArgumentException, lambda: Sandbox.list(order='sideways').next_items())


@check(on='gateway')
async def token_of_another_sandbox():
    first, second = await new_sandbox(), await new_sandbox()
    own, other = ({'X-Access-Token': sandbox._envd_access_token} for sandbox in (first, second))
    for headers, expected in ((own, 200), (other, 401), ({}, 401), ({'X-Access-Token': 'wrong'}, 401)):
        eq(list_processes(first.sandbox_id, headers), expected, str(headers.keys()))


@check(on='gateway')
async def routes_of_the_host():
    sandbox = await new_sandbox()
    token = {'X-Access-Token': sandbox._envd_access_token}
    for path in ('/init', '/freeze', '/upgrade'):
        status, body = to_sandbox(sandbox.sandbox_id, 'POST', path, token, '{}')
        eq((status, body.get('code')), (404, 404), path)


@check(on='gateway')
async def node_is_full():
    # A gateway of its own, whose only place is taken by the first sandbox.
    full = {'api_url': os.environ['SDK_FULL_URL'], 'sandbox_url': os.environ['SDK_FULL_URL']}
    only = keep(await do(Sandbox.create(timeout=60, **full)))
    error = await raises(RateLimitException, lambda: Sandbox.create(timeout=60, **full))
    ok('sandboxes' in str(error), 'what is used up', str(error))
    eq((await do(only.commands.run('echo fine'))).stdout, 'fine\n', 'the first goes on')
    eq(await do(only.kill()), True)

    async def room():
        try:
            return keep(await do(Sandbox.create(timeout=60, **full)))
        except RateLimitException:
            return None

    await eventually(room, 'room after the kill')


@check(on='gateway')
async def killed_sandbox():
    sandbox = await new_sandbox()
    await do(sandbox.kill())
    for call in (lambda: sandbox.commands.run('true'), lambda: sandbox.commands.list(), lambda: sandbox.files.read('f'),
                 lambda: sandbox.files.write('f', 'x'), lambda: sandbox.files.list('.')):
        await raises(SandboxNotRunningException, call)
    await raises(SandboxNotFoundException, lambda: sandbox.get_info())
    await raises(SandboxNotFoundException, lambda: sandbox.set_timeout(10))


@check(on='gateway')
async def killed_during_a_command():
    sandbox = await new_sandbox()
    handles = [await do(sandbox.commands.run('echo first; sleep 60', background=True)) for _ in range(2)]
    await do(sandbox.kill())
    for handle in handles:
        await raises(SandboxNotRunningException, handle.wait)


@check(on='gateway')
async def killed_during_a_download():
    sandbox = await new_sandbox()
    # Nothing that compresses: that might be on its way whole by then.
    await do(sandbox.commands.run('head -c 100000000 /dev/urandom >big'))
    stream = await do(sandbox.files.read('big', format='stream'))
    await do(sandbox.kill())

    # The client hands this stream through as it is: it must break, not end as if it were whole.
    try:
        length = len(await joined(stream))
    except Exception:
        return
    raise AssertionError(f'expected an error, saw an end after {length} bytes')


@check(on='gateway')
async def gateway_gone():
    sandbox = await new_sandbox()
    nowhere = await do(Sandbox.connect(sandbox.sandbox_id, sandbox_url='http://127.0.0.1:9'))
    await raises(SandboxUnreachableException, lambda: nowhere.commands.run('true'))
    await raises(SandboxUnreachableException, lambda: nowhere.files.read('f'))
