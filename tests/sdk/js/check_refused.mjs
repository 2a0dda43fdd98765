// SPDX-License-Identifier: Apache-2.0
// Which class says which failure, for what the control plane and the proxy answer.
import { AuthenticationError, RateLimitError, Sandbox, SandboxError, SandboxNotFoundError, TimeoutError } from 'e2b'
import { checkGateway, eq, eventually, joined, ok, raises, stdout } from './kit.mjs'

const UNKNOWN = 'i0000000000000000000a'

checkGateway('refused.unknown_sandbox', async () => {
  for (const call of [() => Sandbox.getInfo(UNKNOWN), () => Sandbox.connect(UNKNOWN), () => Sandbox.pause(UNKNOWN),
    () => Sandbox.getMetrics(UNKNOWN), () => Sandbox.createSnapshot(UNKNOWN), () => Sandbox.setTimeout(UNKNOWN, 1000),
    () => Sandbox.updateNetwork(UNKNOWN, {}), () => Sandbox.fork(UNKNOWN)]) {
    await raises(SandboxNotFoundError, call, UNKNOWN)
  }
  eq(await Sandbox.kill(UNKNOWN), false)
  eq(await Sandbox.deleteSnapshot(UNKNOWN), false)
})

checkGateway('refused.unknown_template', async () => {
  await raises(SandboxError, () => Sandbox.create('no-such-template'), '404')
})

checkGateway('refused.wrong_key', async () => {
  const apiKey = 'wrong'
  await raises(AuthenticationError, () => Sandbox.create({ apiKey }))
  await raises(AuthenticationError, () => Sandbox.getInfo(UNKNOWN, { apiKey }))
  await raises(AuthenticationError, () => Sandbox.list({ apiKey }).nextItems())
  await raises(AuthenticationError, () => Sandbox.kill(UNKNOWN, { apiKey }))
})

checkGateway('refused.bad_timeout', async () => {
  await raises(SandboxError, () => Sandbox.create({ timeoutMs: 0 }), '400')
})

checkGateway('refused.node_is_full', async (own) => {
  // A gateway of its own, whose only place is taken by the first sandbox.
  const full = { apiUrl: process.env.SDK_FULL_URL, sandboxUrl: process.env.SDK_FULL_URL }
  const only = await own.sandbox(full)
  await raises(RateLimitError, () => Sandbox.create(full), 'sandboxes')
  eq(await stdout(only, 'echo fine'), 'fine\n', 'the first goes on')
  eq(await only.kill(), true)
  const room = () => own.sandbox(full).catch((error) => {
    ok(error instanceof RateLimitError, 'RateLimitError', error)
  })
  await eventually(room, 'room after the kill')
})

checkGateway('refused.killed_sandbox', async (own) => {
  const s = await own.sandbox()
  await s.kill()
  await raises(SandboxNotFoundError, () => s.commands.run('true'))
  await raises(SandboxNotFoundError, () => s.pty.create({ cols: 80, rows: 24, onData() {} }))
  await raises(SandboxNotFoundError, () => s.files.watchDir('.', () => {}))
  await raises(TimeoutError, () => s.commands.list())
  await raises(TimeoutError, () => s.files.read('f'))
  await raises(TimeoutError, () => s.files.write('f', 'x'))
  await raises(SandboxNotFoundError, () => s.getInfo())
  await raises(SandboxNotFoundError, () => s.setTimeout(1000))
})

checkGateway('refused.killed_during_a_command', async (own) => {
  const s = await own.sandbox()
  const handle = await s.commands.run('echo first; sleep 60', { background: true })
  const end = raises(TimeoutError, () => handle.wait())
  await s.kill()
  await end
})

checkGateway('refused.killed_during_a_download', async (own) => {
  const s = await own.sandbox()
  // Nothing that compresses: that might be on its way whole by then.
  await s.commands.run('head -c 100000000 /dev/urandom >big')
  const stream = await s.files.read('big', { format: 'stream' })
  await s.kill()
  // The client hands this stream through as it is: it must break, not end as if it were whole.
  const seen = await joined(stream).then((data) => data.length, (error) => error)
  ok(seen instanceof Error, 'an error', seen)
})
