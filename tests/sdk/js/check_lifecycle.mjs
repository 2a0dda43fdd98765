// SPDX-License-Identifier: Apache-2.0
// Timeouts, pause, resume: what stays, what ends, and what the same client object says meanwhile.
import { CommandExitError, Sandbox, SandboxNotFoundError, TimeoutError } from 'e2b'
import { checkGateway, eq, eventually, ok, raises, stdout } from './kit.mjs'

const state = async (s) => (await s.getInfo()).state
const paused = (s) => eventually(async () => (await state(s)) === 'paused', 'the state paused')
const isGone = (s) => s.getInfo().then(() => false, (error) => error instanceof SandboxNotFoundError)
const notFound = (s) => eventually(() => isGone(s), 'the sandbox gone')
const left = async (s) => (await s.getInfo()).endAt - Date.now()

// Streams learn of a missing sandbox as they open, everything else through its class for time that has run out.
async function doesNotAnswer(s) {
  await raises(SandboxNotFoundError, () => s.commands.run('true'))
  await raises(TimeoutError, () => s.commands.list())
  await raises(TimeoutError, () => s.files.read('f'))
  eq(await s.isRunning(), false)
}

checkGateway('lifecycle.set_timeout', async (own) => {
  const s = await own.sandbox({ timeoutMs: 100000 })
  for (const [ms, set] of [
    [500000, () => s.setTimeout(500000)],
    [50000, () => Sandbox.setTimeout(s.sandboxId, 50000)],
  ]) {
    await set()
    const seen = await left(s)
    ok(Math.abs(seen - ms) < 10000, `${ms} ms left`, seen)
  }
})

checkGateway('lifecycle.timeout_ends_it', async (own) => {
  const s = await own.sandbox({ timeoutMs: 1000 })
  await notFound(s)
  await doesNotAnswer(s)
})

checkGateway('lifecycle.timeout_ends_a_running_command', async (own) => {
  const s = await own.sandbox()
  const handle = await s.commands.run('sleep 60', { background: true })
  const end = raises(TimeoutError, () => handle.wait())
  await s.setTimeout(1000)
  await end
})

checkGateway('lifecycle.pause_and_connect', async (own) => {
  const s = await own.sandbox({ metadata: { kept: 'yes' }, envs: { KEPT: 'yes' } })
  await s.files.write('kept.txt', 'kept')
  const handle = await s.commands.run('sleep 70', { background: true, timeoutMs: 0 })
  await handle.disconnect()
  eq(await s.pause(), true)
  eq(await s.pause(), false, 'once more')
  eq(await state(s), 'paused')
  await doesNotAnswer(s)
  await s.connect({ timeoutMs: 100000 })
  eq(await state(s), 'running')
  eq(await s.isRunning(), true)
  eq(await s.files.read('kept.txt'), 'kept', 'the same object after the pause')
  eq(await stdout(s, 'echo $KEPT'), 'yes\n')
  ok((await s.commands.list()).some(({ pid }) => pid === handle.pid), 'the command still there', 'none')
  eq(await s.commands.kill(handle.pid), true)
})

checkGateway('lifecycle.pause_of_the_files_alone', async (own) => {
  const s = await own.sandbox()
  await s.files.write('kept.txt', 'kept')
  const handle = await s.commands.run('sleep 71', { background: true, timeoutMs: 0 })
  await handle.disconnect()
  eq(await s.pause({ keepMemory: false }), true)
  await s.connect()
  eq(await s.files.read('kept.txt'), 'kept')
  eq((await s.commands.list()).length, 0, 'no command is left')
})

checkGateway('lifecycle.pause_cuts_what_runs', async (own) => {
  const s = await own.sandbox()
  const handle = await s.commands.run('sleep 73', { background: true, timeoutMs: 0 })
  const end = raises(TimeoutError, () => handle.wait())
  await s.pause()
  await end
  await s.connect()
  const again = await s.commands.connect(handle.pid)
  await again.kill()
  await raises(CommandExitError, () => again.wait())
})

checkGateway('lifecycle.connect_by_id_resumes', async (own) => {
  const s = await own.sandbox()
  await s.pause()
  const other = await Sandbox.connect(s.sandboxId, { timeoutMs: 100000 })
  eq(await stdout(other, 'echo up'), 'up\n')
  eq(await stdout(s, 'echo up'), 'up\n', 'and through the old object')
})

checkGateway('lifecycle.kill_of_a_paused_one', async (own) => {
  const s = await own.sandbox()
  await s.pause()
  eq(await s.kill(), true)
  await raises(SandboxNotFoundError, () => s.getInfo())
})

checkGateway('lifecycle.timeout_pauses_where_asked', async (own) => {
  const s = await own.sandbox({ timeoutMs: 1000, lifecycle: { onTimeout: 'pause' } })
  eq((await s.getInfo()).lifecycle, { onTimeout: 'pause', autoResume: false })
  await paused(s)
  await doesNotAnswer(s)
  await s.connect({ timeoutMs: 100000 })
  eq(await stdout(s, 'echo up'), 'up\n')
})

checkGateway('lifecycle.any_request_resumes_where_asked', async (own) => {
  const s = await own.sandbox({ lifecycle: { onTimeout: 'pause', autoResume: true } })
  await s.files.write('f', 'x')
  await s.setTimeout(1000)
  await paused(s)
  eq(await stdout(s, 'echo up'), 'up\n')
  ok((await left(s)) > 250000, 'at least 300 s more', await left(s))
  for (const use of [() => s.files.read('f'), () => s.files.list('.'), () => s.isRunning()]) {
    await s.pause()
    eq(await state(s), 'paused')
    ok(await use(), 'an answer', 'none')
    eq(await state(s), 'running')
  }
})

checkGateway('lifecycle.paused_has_no_timeout_to_set', async (own) => {
  const s = await own.sandbox()
  await s.pause()
  await raises(SandboxNotFoundError, () => s.setTimeout(100000))
})
