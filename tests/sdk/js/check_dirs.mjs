// SPDX-License-Identifier: Apache-2.0
// Directories and entries: make, list, info, rename, remove, exists, links.
import { check, eq, ok, shared } from './kit.mjs'

const listing = (dir, entries) => entries.map((entry) => entry.path.slice(dir.length + 1))

check('dirs.make', async (s, own) => {
  const dir = await own.dir(s)
  eq(await s.files.makeDir(`${dir}/a/b`), true)
  eq(await s.files.makeDir(`${dir}/a/b`), false, 'once more')
  const info = await s.files.getInfo(`${dir}/a`)
  eq([info.type, info.owner, info.permissions, info.mode, info.name, info.path],
    ['dir', shared.user, 'drwxr-xr-x', 0o755, 'a', `${dir}/a`])
})

check('dirs.list_by_depth', async (s, own) => {
  const dir = await own.dir(s)
  await s.files.makeDir(`${dir}/a/b/c`)
  await s.files.write(`${dir}/f`, '')
  await s.files.write(`${dir}/a/g`, '12')
  eq(listing(dir, await s.files.list(dir)), ['a', 'f'])
  eq(listing(dir, await s.files.list(dir, { depth: 2 })), ['a', 'a/b', 'a/g', 'f'])
  eq(listing(dir, await s.files.list(dir, { depth: 9 })), ['a', 'a/b', 'a/b/c', 'a/g', 'f'])
  eq(await s.files.list(`${dir}/a/b/c`), [])
})

check('dirs.info_of_a_file', async (s, own) => {
  const dir = await own.dir(s)
  await s.files.write(`${dir}/g`, '12')
  for (const seen of [(await s.files.list(dir))[0], await s.files.getInfo(`${dir}/g`)]) {
    eq([seen.name, seen.path, seen.type, Number(seen.size), seen.permissions, seen.owner, seen.symlinkTarget ?? null],
      ['g', `${dir}/g`, 'file', 2, '-rw-r--r--', shared.user, null])
    ok(Math.abs(seen.modifiedTime - Date.now()) < 60000, 'the time of now', seen.modifiedTime)
  }
})

check('dirs.links', async (s, own) => {
  const dir = await own.dir(s)
  await s.files.write(`${dir}/t`, '1')
  await s.commands.run('ln -s t l; ln -s nowhere broken; ln -s loop loop', { cwd: dir })
  const info = await s.files.getInfo(`${dir}/l`)
  eq([info.type, info.symlinkTarget, info.name], ['file', `${dir}/t`, 'l'])
  await s.files.remove(`${dir}/l`)
  eq(await s.files.read(`${dir}/t`), '1', 'the target')
  eq((await s.files.list(dir)).map((entry) => entry.name), ['t']) // the client drops what leads nowhere
})

check('dirs.rename', async (s, own) => {
  const dir = await own.dir(s)
  await s.files.write(`${dir}/o`, '1')
  const moved = await s.files.rename(`${dir}/o`, `${dir}/new/p`)
  eq([moved.name, moved.path, moved.type], ['p', `${dir}/new/p`, 'file'])
  eq(await s.files.exists(`${dir}/o`), false)
  eq(await s.files.read(`${dir}/new/p`), '1')
})

check('dirs.remove', async (s, own) => {
  const dir = await own.dir(s)
  await s.files.write(`${dir}/a/b/c`, 'x')
  await s.files.remove(`${dir}/a`)
  eq(await s.files.exists(`${dir}/a`), false)
  await s.files.remove(`${dir}/a`) // nothing there is no error
  eq(await s.files.exists(dir), true)
})
