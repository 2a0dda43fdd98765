// SPDX-License-Identifier: Apache-2.0
// commands.run in the foreground: output, ends, environment, directory, user, timeout; and the git module above it.
import os from 'node:os'
import { AuthenticationError, CommandExitError, InvalidArgumentError, TimeoutError } from 'e2b'
import { GATEWAY, SCALE, check, eq, eventually, ok, raises, shared, stdout } from './kit.mjs'

check('commands.is_running', async (s) => eq(await s.isRunning(), true))

check('commands.channels_are_apart', async (s) => {
  const result = await s.commands.run('echo out; echo err >&2')
  eq([result.stdout, result.stderr, result.exitCode], ['out\n', 'err\n', 0])
})

check('commands.callbacks_get_each_channel', async (s) => {
  let out = ''
  let err = ''
  const script = 'for i in 1 2 3; do echo o$i; echo e$i >&2; done'
  await s.commands.run(script, { onStdout: (text) => void (out += text), onStderr: (text) => void (err += text) })
  eq([out, err], ['o1\no2\no3\n', 'e1\ne2\ne3\n'])
})

check('commands.callbacks_come_while_it_runs', async (s, own) => {
  const cwd = await own.dir(s)
  // The command ends only once its first output has been answered with a file.
  const onStdout = (text) => text === 'ready\n' && s.files.write(`${cwd}/go`, '')
  const script = 'echo ready; while [ ! -e go ]; do sleep 0.02; done; echo done'
  eq(await stdout(s, script, { cwd, onStdout }), 'ready\ndone\n')
})

check('commands.exit_code', async (s) => {
  const error = await raises(CommandExitError, () => s.commands.run('echo a; echo b >&2; exit 42'))
  eq([error.exitCode, error.stdout, error.stderr, error.error], [42, 'a\n', 'b\n', 'exit status 42'])
})

check('commands.exit_by_signal', async (s) => {
  const error = await raises(CommandExitError, () => s.commands.run('kill -9 $$'))
  eq([error.exitCode, error.error], [-1, 'signal: killed'])
})

check('commands.command_not_found', async (s) => {
  const error = await raises(CommandExitError, () => s.commands.run('no-such-command'))
  eq(error.exitCode, 127)
  ok(error.stderr.includes('not found'), 'a "not found" on stderr', error.stderr)
})

check('commands.environment', async (s) => {
  const command = 'printf "%s|%s|%s|" "$A" "$U" "${E-unset}"'
  eq(await stdout(s, command, { envs: { A: 'a b=c"', U: 'žluť 😀', E: '' } }), 'a b=c"|žluť 😀||')
  eq(await stdout(s, command), '||unset|')
})

check('commands.default_user', async (s) => {
  // Without namespaces a sandbox has no `user` of its own: there it is whoever runs the gateway.
  const own = os.userInfo().username
  ok((GATEWAY ? ['user', own] : [own]).includes(shared.user), `user or ${own}`, shared.user)
  eq(await stdout(s, 'echo $HOME $USER; pwd'), `${shared.home} ${shared.user}\n${shared.home}\n`)
})

check('commands.working_directory', async (s, own) => {
  const cwd = await own.dir(s)
  eq(await stdout(s, 'pwd', { cwd }), `${cwd}\n`)
  eq(await stdout(s, 'pwd', { cwd: '/' }), '/\n')
  await raises(InvalidArgumentError, () => s.commands.run('pwd', { cwd: '/no/such' }), '/no/such')
})

check('commands.user', async (s) => {
  eq(await stdout(s, 'id -un; echo $HOME', { user: 'root' }), 'root\n/root\n')
  await raises(AuthenticationError, () => s.commands.run('id', { user: 'no-such-user' }), 'no-such-user')
})

check('commands.timeout_kills', async (s, own) => {
  const start = Date.now()
  const cwd = await own.dir(s)
  await raises(TimeoutError, () => s.commands.run('echo $$ >pid; sleep 60 & wait', { cwd, timeoutMs: 2000 * SCALE }))
  ok(Date.now() - start < 8000 * SCALE, 'the end soon after 2 s', Date.now() - start)
  const pid = (await s.files.read(`${cwd}/pid`)).trim()
  const gone = `kill -0 ${pid} 2>/dev/null || echo gone`
  await eventually(async () => (await stdout(s, gone)) === 'gone\n', 'the command dead', 5)
})

check('commands.timeout_not_reached', async (s) => {
  eq(await stdout(s, 'sleep 0.2; echo x', { timeoutMs: 20000 }), 'x\n')
  eq(await stdout(s, 'sleep 0.2; echo x', { timeoutMs: 0 }), 'x\n', 'no timeout')
  eq(await stdout(s, 'sleep 3.3; echo x', { requestTimeoutMs: 3000 }), 'x\n', 'the request timeout is for the start')
})

check('commands.abort', async (s, own) => {
  const cwd = await own.dir(s)
  const control = new AbortController()
  const run = s.commands.run('touch started; sleep 60', { cwd, signal: control.signal })
  const end = run.then(() => null, (error) => error)
  await eventually(() => s.files.exists(`${cwd}/started`), 'the command started')
  control.abort()
  ok((await end) instanceof Error, 'an error', await end)
  eq(await s.isRunning(), true)
})

check('commands.much_output', async (s) => {
  eq((await stdout(s, "head -c 20000000 /dev/zero | tr '\\0' a")).length, 20000000)
})

check('commands.utf8_across_reads', async (s, own) => {
  const cwd = await own.dir(s)
  const script = "printf 'a\\xe2'; touch first; while [ ! -e go ]; do sleep 0.02; done; printf '\\x82\\xac'"
  const handle = await s.commands.run(script, { background: true, cwd })
  await eventually(() => s.files.exists(`${cwd}/first`), 'the first half written')
  await s.files.write(`${cwd}/go`, '')
  eq((await handle.wait()).stdout, 'a€')
})

check('commands.long_command', async (s) => {
  eq((await stdout(s, `echo -n '${'z'.repeat(100000)}' | wc -c`)).trim(), '100000')
  const tooLong = `echo '${'z'.repeat(200000)}'`
  await raises(InvalidArgumentError, () => s.commands.run(tooLong), 'argument list too long')
})

check('commands.child_that_keeps_the_pipe', async (s) => {
  const start = Date.now()
  eq(await stdout(s, 'sleep 20 & echo x'), 'x\n')
  ok(Date.now() - start < 10000, 'an end that waits for no child', Date.now() - start)
})

check('commands.many_at_once', async (s) => {
  const numbers = [...Array(60).keys()]
  const outputs = await Promise.all(numbers.map((i) => stdout(s, `echo ${i}`)))
  eq(outputs, numbers.map((i) => `${i}\n`))
})

check('commands.slow_callback', async (s) => {
  // A reader that answers late holds its own command up, and no other.
  let length = 0
  let first = true
  const onStdout = async (text) => {
    if (first) eq(await stdout(s, 'echo quick'), 'quick\n')
    first = false
    length += text.length
  }
  await s.commands.run('head -c 5000000 /dev/zero', { onStdout })
  eq(length, 5000000)
})

check('git.commit_and_status', async (s, own) => {
  const path = await own.dir(s)
  await s.git.init(path, { initialBranch: 'main' })
  await s.files.write(`${path}/r`, 'x')
  let status = await s.git.status(path)
  eq([status.currentBranch, status.isClean], ['main', false])
  await s.git.add(path)
  await s.git.commit(path, 'first', { authorName: 'A B', authorEmail: 'a@b.c' })
  status = await s.git.status(path)
  eq(status.isClean, true)
})
