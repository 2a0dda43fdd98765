// SPDX-License-Identifier: Apache-2.0
// uploadUrl and downloadUrl, fetched as anybody would, with no header of the client's. Behind the gateway every sandbox
// is secured, so that the URLs are signed; celld in debug mode has no token and its URLs have no signature.
import { InvalidArgumentError } from 'e2b'
import { check, checkDebug, checkGateway, eq, ok, raises, sleep } from './kit.mjs'

const REFUSED = [400, 401, 404] // by celld, or by a gateway that finds no sandbox with such a signature

async function get(url) {
  const answer = await fetch(url)
  return [answer.status, await answer.text()]
}

async function post(url, text) {
  const form = new FormData()
  form.append('file', new Blob([text]), 'from-the-form.txt')
  const answer = await fetch(url, { method: 'POST', body: form })
  return [answer.status, await answer.text()]
}

check('urls.up_and_down', async (s, own) => {
  const file = `${await own.dir(s)}/a ž+&.txt`
  const [status, answer] = await post(await s.uploadUrl(file), 'up')
  eq([status, JSON.parse(answer)[0].path], [200, file])
  eq(await get(await s.downloadUrl(file)), [200, 'up'])
  eq(await s.files.read(file), 'up')
})

checkDebug('urls.no_expiration_without_a_token', async (s) => {
  await raises(InvalidArgumentError, () => s.downloadUrl('/f', { useSignatureExpiration: 10 }))
  const url = await s.downloadUrl('/f')
  ok(!url.includes('signature'), 'no signature', url)
})

checkGateway('urls.with_expiration_and_user', async (own) => {
  const s = await own.sandbox()
  const file = `${await own.dir(s)}/f`
  const options = { useSignatureExpiration: 60, user: 'root' }
  eq((await post(await s.uploadUrl(file, options), 'up'))[0], 200)
  eq((await s.files.getInfo(file)).owner, 'root')
  eq(await get(await s.downloadUrl(file, options)), [200, 'up'])
})

checkGateway('urls.expired', async (own) => {
  const s = await own.sandbox()
  const file = `${await own.dir(s)}/f`
  await s.files.write(file, 'x')
  const url = await s.downloadUrl(file, { useSignatureExpiration: 1 })
  const end = Number(/signature_expiration=(\d+)/.exec(url)[1])
  await sleep(Math.max(0, (end + 1.1) * 1000 - Date.now())) // that much time is the matter here
  const [status, answer] = await get(url)
  eq(status, 401)
  ok(answer.includes('expired'), 'a message with "expired"', answer)
})

checkGateway('urls.upload_without_a_path', async (own) => {
  const s = await own.sandbox()
  const [status, answer] = await post(await s.uploadUrl(), 'up')
  eq([status, JSON.parse(answer)[0].name], [200, 'from-the-form.txt'])
  eq(await s.files.read('from-the-form.txt'), 'up')
})

checkGateway('urls.tampered', async (own) => {
  const s = await own.sandbox()
  const dir = await own.dir(s)
  for (const name of ['f', 'g']) await s.files.write(`${dir}/${name}`, 'secret')
  const url = await s.downloadUrl(`${dir}/f`)
  for (const wrong of [url.replace('%2Ff&', '%2Fg&'), url.replace(/signature=v1_./, 'signature=v1_!'),
    url.replace(/&signature=[^&]*/, ''), `${url}&username=root`]) {
    ok(wrong !== url, 'another URL', url)
    const [status, answer] = await get(wrong)
    ok(REFUSED.includes(status) && !answer.includes('secret'), 'a refusal', [wrong, status, answer])
  }
  const [status, answer] = await post(url, 'up')
  ok(REFUSED.includes(status), 'a refusal of an upload', [status, answer])
  eq(await s.files.read(`${dir}/f`), 'secret')
})

checkGateway('urls.each_sandbox_has_its_own', async (own) => {
  const boxes = [await own.sandbox(), await own.sandbox()]
  for (const [i, s] of boxes.entries()) await s.files.write('mine.txt', `of ${i}`)
  for (const [i, s] of boxes.entries()) eq(await get(await s.downloadUrl('mine.txt')), [200, `of ${i}`])
})
