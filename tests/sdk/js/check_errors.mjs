// SPDX-License-Identifier: Apache-2.0
// Which class says which failure, for what celld itself answers.
import { AuthenticationError, FileNotFoundError, InvalidArgumentError, NotEnoughSpaceError } from 'e2b'
import { check, raises } from './kit.mjs'

check('errors.nothing_there', async (s, own) => {
  const file = `${await own.dir(s)}/no`
  await raises(FileNotFoundError, () => s.files.read(file), file)
  await raises(FileNotFoundError, () => s.files.read(file, { format: 'stream' }))
  await raises(FileNotFoundError, () => s.files.list(file))
  await raises(FileNotFoundError, () => s.files.getInfo(file))
  await raises(FileNotFoundError, () => s.files.rename(file, `${file}x`))
  await raises(FileNotFoundError, () => s.files.watchDir(file, () => {}))
})

check('errors.directory_for_a_file', async (s, own) => {
  const dir = await own.dir(s)
  await raises(InvalidArgumentError, () => s.files.read(dir))
  await raises(InvalidArgumentError, () => s.files.write(dir, 'x'))
  await raises(InvalidArgumentError, () => s.files.write(dir, 'x', { useOctetStream: true }))
})

check('errors.file_for_a_directory', async (s, own) => {
  const file = `${await own.dir(s)}/f`
  await s.files.write(file, 'x')
  await raises(InvalidArgumentError, () => s.files.list(file))
  await raises(InvalidArgumentError, () => s.files.makeDir(file))
  await raises(InvalidArgumentError, () => s.files.watchDir(file, () => {}))
})

check('errors.depth_of_nothing', async (s, own) => {
  const dir = await own.dir(s)
  await raises(InvalidArgumentError, () => s.files.list(dir, { depth: 0 }))
})

check('errors.unknown_user', async (s, own) => {
  const dir = await own.dir(s)
  const user = 'no-such-user'
  await raises(AuthenticationError, () => s.files.read(`${dir}/f`, { user }))
  await raises(AuthenticationError, () => s.files.write(`${dir}/f`, 'x', { user }))
  await raises(AuthenticationError, () => s.files.list(dir, { user }))
})

check('errors.bad_metadata', async (s, own) => {
  const dir = await own.dir(s)
  await raises(InvalidArgumentError, () => s.files.write(`${dir}/f`, 'x', { metadata: { k: 'v'.repeat(5000) } }))
})

check('errors.no_space', async (s) => {
  await raises(NotEnoughSpaceError, () => s.files.write('/dev/full', 'x', { user: 'root' }))
})
