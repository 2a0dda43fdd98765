// SPDX-License-Identifier: Apache-2.0
// Commands in the background: list, connect, kill, disconnect; standard input.
import { CommandExitError, NotFoundError, SandboxError } from 'e2b'
import { bytes, check, eq, eventually, ok, raises } from './kit.mjs'

const NOBODY = 4000000 // above any pid_max that is set by default

// A command that goes on with `then` once a file `go` is there.
const waiting = (s, cwd, then, options = {}) =>
  s.commands.run(`while [ ! -e go ]; do sleep 0.02; done; ${then}`, { background: true, cwd, ...options })

const cat = (s, command = 'cat', options = {}) => s.commands.run(command, { background: true, stdin: true, ...options })

check('background.list_shows_what_was_asked', async (s) => {
  const handle = await s.commands.run('sleep 33', { background: true, envs: { A: 'b' }, cwd: '/tmp' })
  const seen = (await s.commands.list()).find(({ pid }) => pid === handle.pid)
  eq([seen.cmd, seen.args, seen.envs, seen.cwd, seen.tag ?? null],
    ['/bin/bash', ['-l', '-c', 'sleep 33'], { A: 'b' }, '/tmp', null])
  await handle.kill()
})

check('background.listed_pids_can_be_connected_and_killed', async (s) => {
  const handle = await s.commands.run('sleep 34', { background: true })
  const { pid } = (await s.commands.list()).find((process) => process.pid === handle.pid)
  const other = await s.commands.connect(pid)
  eq(other.pid, handle.pid)
  eq(await s.commands.kill(pid), true)
  for (const each of [handle, other]) {
    const error = await raises(CommandExitError, () => each.wait())
    eq([error.exitCode, error.error], [-1, 'signal: killed'])
  }
  ok(!(await s.commands.list()).find((process) => process.pid === pid), 'it gone from the list', pid)
})

check('background.kill_is_true_once', async (s) => {
  const handle = await s.commands.run('sleep 35', { background: true })
  eq(await handle.kill(), true)
  await raises(CommandExitError, () => handle.wait())
  eq(await s.commands.kill(handle.pid), false)
})

check('background.kill_reaches_the_children', async (s, own) => {
  const cwd = await own.dir(s)
  const handle = await s.commands.run('sleep 36 & echo $! >child; wait', { background: true, cwd })
  const read = () => s.files.read(`${cwd}/child`).catch(() => '')
  const child = (await eventually(read, "the child's pid")).trim()
  await handle.kill()
  await raises(CommandExitError, () => handle.wait())
  const probe = `kill -0 ${child} 2>/dev/null || echo gone`
  await eventually(async () => (await s.commands.run(probe)).stdout === 'gone\n', 'the child dead', 5)
})

check('background.connect_gets_what_follows', async (s, own) => {
  const cwd = await own.dir(s)
  const handle = await waiting(s, cwd, 'echo late; exit 3')
  let text = ''
  const other = await s.commands.connect(handle.pid, { onStdout: (data) => void (text += data) })
  await s.files.write(`${cwd}/go`, '')
  for (const each of [other, handle]) {
    const error = await raises(CommandExitError, () => each.wait())
    eq([error.stdout, error.exitCode], ['late\n', 3])
  }
  eq(text, 'late\n')
})

check('background.disconnect_leaves_it_running', async (s, own) => {
  const cwd = await own.dir(s)
  const handle = await waiting(s, cwd, 'echo done')
  await handle.disconnect()
  const other = await s.commands.connect(handle.pid)
  await s.files.write(`${cwd}/go`, '')
  eq((await other.wait()).stdout, 'done\n')
})

check('background.connect_after_the_end', async (s) => {
  const handle = await s.commands.run('exit 4', { background: true })
  await raises(CommandExitError, () => handle.wait())
  const other = await s.commands.connect(handle.pid)
  eq((await raises(CommandExitError, () => other.wait())).exitCode, 4)
})

check('background.nobody_there', async (s) => {
  await raises(NotFoundError, () => s.commands.connect(NOBODY))
  eq(await s.commands.kill(NOBODY), false)
})

check('background.many', async (s, own) => {
  const cwd = await own.dir(s)
  const numbers = [...Array(60).keys()]
  const script = (i) => `while [ ! -e go ]; do sleep 1; done; echo ${i}`
  const handles = await Promise.all(numbers.map((i) => s.commands.run(script(i), { background: true, cwd })))
  eq(new Set(handles.map(({ pid }) => pid)).size, 60)
  await s.files.write(`${cwd}/go`, '')
  const results = await Promise.all(handles.map((handle) => handle.wait()))
  eq(results.map((result) => result.stdout), numbers.map((i) => `${i}\n`))
})

check('stdin.text_bytes_and_nothing', async (s) => {
  const handle = await cat(s)
  await s.commands.sendStdin(handle.pid, 'hello')
  await handle.sendStdin(bytes(' ž\n'))
  await s.commands.sendStdin(handle.pid, '')
  await eventually(() => handle.stdout === 'hello ž\n', 'the echo while stdin is open')
  await handle.closeStdin()
  eq((await handle.wait()).stdout, 'hello ž\n')
})

check('stdin.control_characters', async (s) => {
  const text = '!@#$%^&*()_+\0\t\x04\x03\'"\\ 日本\n'
  const handle = await cat(s)
  await handle.sendStdin(text)
  await handle.closeStdin()
  eq((await handle.wait()).stdout, text)
})

check('stdin.large', async (s) => {
  const handle = await cat(s, 'wc -c')
  for (let i = 0; i < 4; i++) await handle.sendStdin('x'.repeat(1000000))
  await handle.closeStdin()
  eq((await handle.wait()).stdout.trim(), '4000000')
})

check('stdin.off_unless_asked', async (s) => {
  eq((await raises(CommandExitError, () => s.commands.run('read x; exit $?'))).exitCode, 1)
  const handle = await s.commands.run('sleep 37', { background: true })
  await raises(SandboxError, () => handle.sendStdin('x'))
  await handle.kill()
  await raises(CommandExitError, () => handle.wait())
})

check('stdin.nobody_there', async (s) => {
  await raises(NotFoundError, () => s.commands.sendStdin(NOBODY, 'x'))
  await raises(NotFoundError, () => s.commands.closeStdin(NOBODY))
})
