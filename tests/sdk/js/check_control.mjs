// SPDX-License-Identifier: Apache-2.0
// The control plane: create, info, list, kill, environment, metrics, network, hosts and ports.
import crypto from 'node:crypto'
import http from 'node:http'
import { CommandExitError, Sandbox } from 'e2b'
import { checkGateway, eq, eventually, ok, raises, stdout } from './kit.mjs'

const mark = () => crypto.randomUUID()

// All pages of a listing, as lists of ids.
async function pages(options) {
  const paginator = Sandbox.list(options)
  const seen = []
  while (paginator.hasNext) {
    seen.push((await paginator.nextItems()).map((info) => info.sandboxId))
    ok(seen.length < 20, 'an end of the pages', seen)
  }
  return seen
}

// GET of a sandbox's port at the gateway, which finds the sandbox by the host name.
function getThrough(host, path) {
  const { hostname, port } = new URL(process.env.E2B_API_URL)
  return new Promise((resolve, reject) => {
    const request = http.get({ hostname, port, path, headers: { Host: host }, agent: false }, (answer) => {
      let text = ''
      answer.on('data', (data) => (text += data))
      answer.on('end', () => resolve([answer.statusCode, text]))
      answer.on('error', reject)
    })
    request.on('error', reject)
  })
}

checkGateway('control.create_answers_what_info_says', async (own) => {
  const metadata = { run: mark(), 'odd key &=%': 'ž 1+1=2&x' }
  const s = await own.sandbox({ timeoutMs: 200000, metadata })
  ok(/^[a-z0-9]+$/.test(s.sandboxId), 'an id of a-z0-9', s.sandboxId)
  const info = await s.getInfo()
  eq([info.sandboxId, info.state, info.metadata], [s.sandboxId, 'running', metadata])
  eq(info.name ?? info.templateId, 'base')
  ok(Math.abs(Date.now() - info.startedAt) < 30000, 'a start just now', info.startedAt)
  ok(Math.abs(info.endAt - info.startedAt - 200000) < 10000, 'an end after 200 s', info.endAt)
  eq(await Sandbox.getInfo(s.sandboxId), info, 'by id')
})

checkGateway('control.connect_by_id', async (own) => {
  const s = await own.sandbox()
  await s.files.write('here.txt', 'same')
  eq(await (await Sandbox.connect(s.sandboxId)).files.read('here.txt'), 'same')
})

checkGateway('control.list_by_metadata', async (own) => {
  const common = mark()
  const first = await own.sandbox({ metadata: { common, 'a b': 'c&d=ž' } })
  const second = await own.sandbox({ metadata: { common, own: 'x' } })
  for (const [metadata, expected] of [[{ common }, [second, first]], [{ common, 'a b': 'c&d=ž' }, [first]],
    [{ common, own: 'x' }, [second]], [{ common, own: 'y' }, []]]) {
    eq((await pages({ query: { metadata } })).flat(), expected.map((s) => s.sandboxId), JSON.stringify(metadata))
  }
})

checkGateway('control.list_in_pages', async (own) => {
  const metadata = { run: mark() }
  const ids = []
  for (let i = 0; i < 3; i++) ids.push((await own.sandbox({ metadata })).sandboxId)
  const filled = async (options) => (await pages({ query: { metadata }, ...options })).filter((page) => page.length)
  eq(await filled({}), [ids.toReversed?.() ?? [...ids].reverse()], 'the newest first')
  eq(await filled({ order: 'asc' }), [ids])
  eq(await filled({ order: 'asc', limit: 1 }), ids.map((id) => [id]), 'one a page')
  eq(await filled({ order: 'asc', limit: 2 }), [ids.slice(0, 2), ids.slice(2)], 'two a page')
})

checkGateway('control.list_by_state_and_time', async (own) => {
  const metadata = { run: mark() }
  const running = await own.sandbox({ metadata })
  const paused = await own.sandbox({ metadata })
  await paused.pause()
  const found = async (query) => (await pages({ query: { metadata, ...query } })).flat()
  eq(await found({ state: ['running'] }), [running.sandboxId])
  eq(await found({ state: ['paused'] }), [paused.sandboxId])
  eq(await found({ state: ['running', 'paused'] }), [paused.sandboxId, running.sandboxId])
  eq(await found({ startedAfter: new Date(Date.now() + 3600000) }), [])
  eq((await found({ startedAfter: new Date(Date.now() - 3600000) })).length, 2)
})

checkGateway('control.kill_is_true_once', async (own) => {
  const s = await own.sandbox()
  eq(await s.isRunning(), true)
  eq(await s.kill(), true)
  eq(await s.kill(), false)
  eq(await Sandbox.kill(s.sandboxId), false)
  eq(await s.isRunning(), false)
})

checkGateway('control.environment_of_the_session', async (own) => {
  const s = await own.sandbox({ envs: { SESSION: 'one two=ž', BOTH: 'session' } })
  const command = 'printf "%s|%s|%s" "$SESSION" "$BOTH" "$CALL"'
  eq(await stdout(s, command), 'one two=ž|session|')
  eq(await stdout(s, command, { envs: { BOTH: 'call', CALL: 'x' } }), 'one two=ž|call|x', "the call's wins")
  eq(await stdout(s, command), 'one two=ž|session|', 'and is not kept')
})

checkGateway('control.metrics', async (own) => {
  const s = await own.sandbox()
  const metrics = await eventually(async () => ((list) => list.length && list)(await s.getMetrics()), 'a metric', 15)
  const metric = metrics.at(-1)
  const { cpuCount, cpuUsedPct } = metric
  ok(cpuCount >= 1 && cpuUsedPct >= 0 && cpuUsedPct <= 100 * cpuCount, 'a sound CPU figure', metric)
  ok(metric.memUsed > 0 && metric.memUsed <= metric.memTotal, 'sound sizes', metric)
})

checkGateway('control.network_is_taken_and_shown', async (own) => {
  const s = await own.sandbox({ allowInternetAccess: false })
  eq((await s.getInfo()).allowInternetAccess, false)
  await Sandbox.updateNetwork(s.sandboxId, { denyOut: ['10.0.0.0/8'] })
  eq(await s.isRunning(), true)
})

checkGateway('control.port_of_the_sandbox', async (own) => {
  // A server in the sandbox that picks its port itself, says it in a file, and is reached by the host name alone.
  const s = await own.sandbox()
  await s.files.write('serve.py', `import http.server as h
s = h.HTTPServer(("127.0.0.1", 0), h.SimpleHTTPRequestHandler)
open("port", "w").write(str(s.server_port) + "\\n")
s.serve_forever()
`)
  await s.files.write('hello.txt', 'hello from inside')
  const handle = await s.commands.run('python3 serve.py', { background: true, timeoutMs: 0 })
  const read = async () => /^\d+\n$/.exec(await s.files.read('port').catch(() => ''))
  const host = s.getHost(Number((await eventually(read, "the server's port"))[0]))
  eq(await getThrough(host, '/hello.txt'), [200, 'hello from inside'])
  await handle.kill()
  await raises(CommandExitError, () => handle.wait())
  const [status, text] = await getThrough(host, '/hello.txt')
  eq(status, 502)
  ok(text.includes('port is not open'), 'that the port is not open', text)
})
