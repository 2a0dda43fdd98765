// SPDX-License-Identifier: Apache-2.0
// Terminals: create, input, size, kill, connect.
import { CommandExitError, InvalidArgumentError, NotFoundError, TimeoutError } from 'e2b'
import { SCALE, bytes, check, eq, eventually, ok, raises, shared } from './kit.mjs'

const NOBODY = 4000000

// A terminal and a function that tells what it has shown.
async function create(s, options = {}) {
  const shown = []
  const onData = (data) => void shown.push(Buffer.from(data))
  const handle = await s.pty.create({ cols: 80, rows: 24, onData, ...options })
  return [handle, () => Buffer.concat(shown).toString()]
}

const has = (text, part) => ok(text.includes(part), `'${part}' on the terminal`, text)

check('pty.environment_and_size', async (s) => {
  const [handle, shown] = await create(s, { envs: { ABC: '123' }, cwd: '/' })
  await s.pty.sendInput(handle.pid, bytes('echo "v=$ABC $TERM $PWD"; stty size; exit\n'))
  eq((await handle.wait()).exitCode, 0)
  has(shown(), 'v=123 xterm-256color /\r\n')
  has(shown(), '24 80\r\n')
})

check('pty.default_user_and_root', async (s) => {
  for (const [options, name] of [[{}, shared.user], [{ user: 'root' }, 'root']]) {
    const [handle, shown] = await create(s, options)
    await s.pty.sendInput(handle.pid, bytes('echo "<$(id -un)>"; exit\n'))
    await handle.wait()
    has(shown(), `<${name}>\r\n`)
  }
})

check('pty.resize', async (s) => {
  const [handle, shown] = await create(s)
  await s.pty.resize(handle.pid, { cols: 111, rows: 33 })
  await s.pty.sendInput(handle.pid, bytes('stty size; exit 7\n'))
  eq((await raises(CommandExitError, () => handle.wait())).exitCode, 7)
  has(shown(), '33 111\r\n')
})

check('pty.kill', async (s) => {
  const [handle] = await create(s)
  eq(await handle.kill(), true)
  const error = await raises(CommandExitError, () => handle.wait())
  eq([error.exitCode, error.error], [-1, 'signal: killed'])
  eq(await s.pty.kill(handle.pid), false)
})

check('pty.control_c_interrupts', async (s, own) => {
  const cwd = await own.dir(s)
  const [handle, shown] = await create(s, { cwd })
  await s.pty.sendInput(handle.pid, bytes('sh -c ": >started; exec sleep 60"\n'))
  await eventually(() => s.files.exists(`${cwd}/started`), 'the command started')
  await s.pty.sendInput(handle.pid, bytes('\x03'))
  await s.pty.sendInput(handle.pid, bytes('echo "<$?>"; exit 0\n'))
  eq((await handle.wait()).exitCode, 0)
  has(shown(), '<130>')
})

check('pty.connect', async (s) => {
  const [handle] = await create(s, { timeoutMs: 0 })
  await handle.disconnect()
  let text = ''
  const other = await s.pty.connect(handle.pid, { onData: (data) => void (text += Buffer.from(data)) })
  await s.pty.sendInput(handle.pid, bytes('echo "<$((40+2))>"; exit\n'))
  eq((await other.wait()).exitCode, 0)
  has(text, '<42>')
})

check('pty.timeout', async (s) => {
  const [handle] = await create(s, { timeoutMs: 2000 * SCALE })
  await raises(TimeoutError, () => handle.wait())
  const gone = async () => !(await s.commands.list()).find(({ pid }) => pid === handle.pid)
  await eventually(gone, 'the terminal gone from the list', 5)
})

check('pty.many', async (s) => {
  const made = await Promise.all([...Array(20)].map(() => create(s)))
  await Promise.all(made.map(([handle]) => s.pty.sendInput(handle.pid, bytes('exit 0\n'))))
  const ends = await Promise.all(made.map(([handle]) => handle.wait()))
  eq(ends.map((end) => end.exitCode), made.map(() => 0))
})

check('pty.directory_missing', async (s) => {
  await raises(InvalidArgumentError, () => create(s, { cwd: '/no/such' }), '/no/such')
})

check('pty.nobody_there', async (s) => {
  await raises(NotFoundError, () => s.pty.sendInput(NOBODY, bytes('x')))
  await raises(NotFoundError, () => s.pty.resize(NOBODY, { cols: 1, rows: 1 }))
  await raises(NotFoundError, () => s.pty.connect(NOBODY, { onData() {} }))
  eq(await s.pty.kill(NOBODY), false)
})
