# SPDX-License-Identifier: Apache-2.0
"""commands.run in the foreground: output, ends, environment, directory, user, timeout."""
import getpass
import time

from e2b import AuthenticationException, CommandExitException, InvalidArgumentException, TimeoutException

from kit import GATEWAY, SCALE, SHARED, check, do, eq, eventually, fresh_dir, ok, parallel, raises, run


@check()
async def is_running(s):
    eq(await do(s.is_running()), True)


@check()
async def channels_are_apart(s):
    result = await do(s.commands.run('echo out; echo err >&2'))
    eq((result.stdout, result.stderr, result.exit_code, result.error), ('out\n', 'err\n', 0, None))


@check()
async def no_output(s):
    result = await do(s.commands.run('true'))
    eq((result.stdout, result.stderr, result.exit_code), ('', '', 0))


@check()
async def callbacks_get_each_channel(s):
    out, err = [], []
    await do(s.commands.run('for i in 1 2 3; do echo o$i; echo e$i >&2; done', on_stdout=out.append,
                            on_stderr=err.append))
    eq((''.join(out), ''.join(err)), ('o1\no2\no3\n', 'e1\ne2\ne3\n'))


@check()
async def callbacks_come_while_it_runs(s):
    path = await fresh_dir(s)
    # The command ends only once its first output has been answered with a file.
    script = 'echo ready; while [ ! -e go ]; do sleep 0.02; done; echo done'
    answer = lambda text: s.files.write(f'{path}/go', '') if text == 'ready\n' else None
    eq(await run(s, script, cwd=path, on_stdout=answer), 'ready\ndone\n')


@check()
async def output_is_not_retained_when_asked(s):
    out = []
    result = await do(s.commands.run('echo x', on_stdout=out.append, retain_output=False))
    eq((result.stdout, ''.join(out)), (None, 'x\n'))


@check()
async def exit_code(s):
    error = await raises(CommandExitException, lambda: s.commands.run('echo a; echo b >&2; exit 42'))
    eq((error.exit_code, error.stdout, error.stderr, error.error), (42, 'a\n', 'b\n', 'exit status 42'))


@check()
async def exit_by_signal(s):
    error = await raises(CommandExitException, lambda: s.commands.run('kill -9 $$'))
    eq((error.exit_code, error.error), (-1, 'signal: killed'))
    error = await raises(CommandExitException, lambda: s.commands.run('ulimit -c 0; kill -SEGV $$'))
    eq((error.exit_code, error.error), (-1, 'signal: segmentation fault'))


@check()
async def command_not_found(s):
    error = await raises(CommandExitException, lambda: s.commands.run('no-such-command'))
    eq(error.exit_code, 127)
    ok('not found' in error.stderr, 'a "not found" on stderr', error.stderr)


@check()
async def environment(s):
    command, envs = 'printf "%s|%s|%s|" "$A" "$U" "${E-unset}"', {'A': 'a b=c"', 'U': 'žluť 😀', 'E': ''}
    eq(await run(s, command, envs=envs), 'a b=c"|žluť 😀||')
    eq(await run(s, command), '||unset|')


@check()
async def default_environment(s):
    eq(await run(s, 'echo $HOME $USER $LOGNAME; pwd; id -un; umask'),
       '{home} {user} {user}\n{home}\n{user}\n0022\n'.format(**SHARED))


@check()
async def default_user(s):
    # Without namespaces a sandbox has no `user` of its own: there it is whoever runs the gateway.
    own = getpass.getuser()
    ok(SHARED['user'] in (('user', own) if GATEWAY else (own,)), f'user or {own}', SHARED['user'])


@check()
async def working_directory(s):
    path = await fresh_dir(s)
    eq(await run(s, 'pwd', cwd=path), f'{path}\n')
    eq(await run(s, 'pwd', cwd='/'), '/\n')
    name = path.rsplit('/', 1)[1]
    await do(s.commands.run(f'mkdir ~/{name}.d'))
    try:
        eq(await run(s, 'pwd', cwd=f'{name}.d'), f"{SHARED['home']}/{name}.d\n", 'relative to the home')
        eq(await run(s, 'pwd', cwd=f'~/{name}.d'), f"{SHARED['home']}/{name}.d\n", '~')
    finally:
        await do(s.commands.run(f'rmdir ~/{name}.d'))


@check()
async def working_directory_missing(s):
    await raises(InvalidArgumentException, lambda: s.commands.run('pwd', cwd='/no/such'), '/no/such')


@check()
async def user(s):
    eq(await run(s, 'id -un; echo $HOME', user='root'), 'root\n/root\n')
    eq(await run(s, 'id -un; echo $USER', user='nobody', cwd='/'), 'nobody\nnobody\n')


@check()
async def user_unknown(s):
    await raises(AuthenticationException, lambda: s.commands.run('id', user='no-such-user'), 'no-such-user')


@check()
async def timeout_kills(s):
    start = time.monotonic()
    path = await fresh_dir(s)
    await raises(TimeoutException, lambda: s.commands.run('echo $$ >pid; sleep 60 & wait', cwd=path, timeout=2 * SCALE))
    ok(time.monotonic() - start < 8 * SCALE, 'the end soon after 2 s', time.monotonic() - start)
    pid = (await do(s.files.read(f'{path}/pid'))).strip()
    gone = f'kill -0 {pid} 2>/dev/null && echo alive || echo gone'
    await eventually(lambda: is_gone(s, gone), 'the command dead', 5)


async def is_gone(s, command):
    return (await run(s, command)) == 'gone\n'


@check()
async def timeout_not_reached(s):
    eq(await run(s, 'sleep 0.2; echo x', timeout=20), 'x\n')
    eq(await run(s, 'sleep 0.2; echo x', timeout=0), 'x\n', 'no timeout')


@check()
async def much_output(s):
    eq(len(await run(s, "head -c 20000000 /dev/zero | tr '\\0' a")), 20000000)


@check()
async def utf8_across_reads(s):
    # Two writes whose border lies inside a character; the second waits until the first was read.
    path = await fresh_dir(s)
    script = "printf 'a\\xe2' >&1; touch first; while [ ! -e go ]; do sleep 0.02; done; printf '\\x82\\xac'"
    handle = await do(s.commands.run(script, background=True, cwd=path))
    await eventually(lambda: s.files.exists(f'{path}/first'), 'the first half written')
    await do(s.files.write(f'{path}/go', ''))
    eq((await do(handle.wait())).stdout, 'a€')


@check()
async def broken_utf8(s):
    eq(await run(s, "printf 'x\\xff\\xe2'"), 'x\ufffd\ufffd')


@check()
async def quoting_and_lines(s):
    eq(await run(s, "cat <<'X'\nhello $NOT \"q\"\n'ž'\nX"), 'hello $NOT "q"\n\'ž\'\n')


@check()
async def long_command(s):
    eq((await run(s, f"echo -n '{'z' * 100000}' | wc -c")).strip(), '100000')
    too_long = f"echo '{'z' * 200000}'"
    await raises(InvalidArgumentException, lambda: s.commands.run(too_long), 'argument list too long')


@check()
async def child_that_keeps_the_pipe(s):
    start = time.monotonic()
    eq(await run(s, 'sleep 20 & echo x'), 'x\n')
    ok(time.monotonic() - start < 10, 'an end that waits for no child', time.monotonic() - start)


@check()
async def many_at_once(s):
    outputs = await parallel(*[lambda i=i: s.commands.run(f'echo {i}') for i in range(30)])
    eq([output.stdout for output in outputs], [f'{i}\n' for i in range(30)])
