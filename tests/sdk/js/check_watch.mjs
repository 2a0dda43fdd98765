// SPDX-License-Identifier: Apache-2.0
// Watches, streamed.
import { TimeoutError } from 'e2b'
import { check, deferred, eq, eventually, ok } from './kit.mjs'

// A watch as a growing list of 'name:type'.
async function watching(s, dir, options = {}) {
  const events = []
  const handle = await s.files.watchDir(dir, (event) => void events.push(event), options)
  const seen = () => events.map((event) => `${event.name}:${event.type}`)
  const until = async (...expected) => {
    const come = () => expected.every((each) => seen().includes(each))
    await eventually(come, 'the events').catch(() => ok(false, expected.join(' '), seen().join(' ')))
  }
  return { handle, events, seen, until }
}

check('watch.each_kind', async (s, own) => {
  const dir = await own.dir(s)
  const watch = await watching(s, dir)
  await s.files.write(`${dir}/f`, 'x')
  await watch.until('f:create', 'f:write')
  await s.files.rename(`${dir}/f`, `${dir}/g`)
  await watch.until('f:rename', 'g:create')
  await s.files.remove(`${dir}/g`)
  await watch.until('g:remove')
  await s.commands.run('touch c; chmod 600 c', { cwd: dir })
  await watch.until('c:create', 'c:chmod')
  await watch.handle.stop()
})

check('watch.recursive', async (s, own) => {
  const dir = await own.dir(s)
  await s.files.makeDir(`${dir}/sub`)
  const watch = await watching(s, dir, { recursive: true })
  await s.files.write(`${dir}/sub/f`, 'x')
  await s.files.makeDir(`${dir}/new/deep`)
  await s.files.write(`${dir}/new/deep/h`, 'x')
  await watch.until('sub/f:create', 'sub/f:write', 'new:create', 'new/deep:create')
  await watch.until('new/deep/h:create', 'new/deep/h:write')
  await watch.handle.stop()
})

check('watch.not_recursive', async (s, own) => {
  const dir = await own.dir(s)
  await s.files.makeDir(`${dir}/sub`)
  const watch = await watching(s, dir)
  await s.files.write(`${dir}/sub/f`, 'x')
  await s.files.write(`${dir}/last`, 'x')
  await watch.until('last:write')
  ok(!watch.seen().some((each) => each.startsWith('sub/')), 'nothing of sub/', watch.seen())
  await watch.handle.stop()
})

check('watch.with_entries', async (s, own) => {
  const dir = await own.dir(s)
  const watch = await watching(s, dir, { includeEntry: true })
  await s.files.write(`${dir}/f`, 'xyz')
  await watch.until('f:write')
  const { entry } = watch.events.filter((event) => event.type === 'write').at(-1)
  eq([entry.path, Number(entry.size)], [`${dir}/f`, 3])
  await watch.handle.stop()
})

check('watch.stop_is_silent', async (s, own) => {
  const dir = await own.dir(s)
  const exit = deferred()
  const first = await watching(s, dir, { onExit: exit.resolve })
  const second = await watching(s, dir)
  await first.handle.stop()
  await exit.promise
  await s.files.write(`${dir}/f`, 'x')
  await second.until('f:write')
  eq(first.seen(), [])
  await second.handle.stop()
})

check('watch.timeout_ends_it', async (s, own) => {
  const exit = deferred()
  await watching(s, await own.dir(s), { timeoutMs: 600, onExit: exit.resolve })
  eq((await exit.promise)?.constructor?.name, TimeoutError.name)
})

check('watch.many_watches', async (s, own) => {
  const dir = await own.dir(s)
  const watches = await Promise.all([...Array(30)].map(() => watching(s, dir)))
  await s.files.write(`${dir}/x`, '')
  await Promise.all(watches.map((watch) => watch.until('x:create')))
  await Promise.all(watches.map((watch) => watch.handle.stop()))
})

check('watch.many_events', async (s, own) => {
  const dir = await own.dir(s)
  const watch = await watching(s, dir)
  await s.commands.run('touch $(seq -f f%g 1000)', { cwd: dir })
  const created = () => watch.events.filter((event) => event.type === 'create').length === 1000
  await eventually(created, '1000 creations')
  await watch.handle.stop()
})
