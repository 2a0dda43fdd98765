// SPDX-License-Identifier: Apache-2.0
// Snapshots and forks.
import { Sandbox, SandboxError } from 'e2b'
import { checkGateway, eq, ok, raises, stdout } from './kit.mjs'

async function snapshots(options) {
  const paginator = Sandbox.listSnapshots(options)
  const seen = []
  while (paginator.hasNext) seen.push(...(await paginator.nextItems()).map((info) => info.snapshotId))
  return seen
}

checkGateway('snapshot.create_from_a_snapshot', async (own) => {
  const s = await own.sandbox()
  await s.files.write('deep/kept.txt', 'as it was')
  await s.commands.run('chmod 700 deep; ln -s deep/kept.txt link')
  const { snapshotId } = await s.createSnapshot()
  try {
    await s.files.write('deep/kept.txt', 'changed later')
    eq(await s.isRunning(), true, 'the source goes on')
    await s.kill()
    const twins = [await own.sandbox({}, snapshotId), await own.sandbox({}, snapshotId)]
    for (const twin of twins) {
      eq(await twin.files.read('link'), 'as it was')
      eq(await stdout(twin, 'stat -c %a deep'), '700\n')
    }
    await twins[0].files.write('link', 'mine')
    eq(await twins[1].files.read('link'), 'as it was', 'the other one')
  } finally {
    await Sandbox.deleteSnapshot(snapshotId)
  }
})

checkGateway('snapshot.list_and_delete', async (own) => {
  const s = await own.sandbox()
  const ids = [(await s.createSnapshot()).snapshotId, (await s.createSnapshot()).snapshotId]
  eq((await snapshots({ sandboxId: s.sandboxId })).sort(), [...ids].sort())
  eq((await snapshots({ sandboxId: s.sandboxId, limit: 1 })).sort(), [...ids].sort(), 'one a page')
  eq(await Sandbox.deleteSnapshot(ids[0]), true)
  eq(await Sandbox.deleteSnapshot(ids[0]), false, 'once more')
  eq(await snapshots({ sandboxId: s.sandboxId }), [ids[1]])
  await raises(SandboxError, () => Sandbox.create(ids[0]), '404')
  eq(await Sandbox.deleteSnapshot(ids[1]), true)
})

checkGateway('snapshot.fork_answers_for_each', async (own) => {
  // Whoever cannot copy running memory says so for each fork, and the source goes on.
  const s = await own.sandbox()
  await s.files.write('f', 'source')
  const forks = await s.fork({ count: 2, timeoutMs: 60000 })
  eq(forks.length, 2)
  for (const fork of forks) {
    if (fork instanceof Error) ok(fork instanceof SandboxError && fork.message, 'a SandboxError that says why', fork)
    else eq(await own.keep(fork).files.read('f'), 'source')
  }
  eq(await stdout(s, 'cat f'), 'source')
})
