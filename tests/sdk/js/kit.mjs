// SPDX-License-Identifier: Apache-2.0
// What every check uses. A check gets a sandbox and what belongs to it alone: what it made through dir() and sandbox()
// goes away with it. Checks run some at a time; one that does not end in time has failed.
import assert from 'node:assert/strict'
import crypto from 'node:crypto'
import { Sandbox } from 'e2b'

const TARGET = process.env.SDK_TARGET ?? 'debug' // debug: celld itself; gateway: the control plane and its proxy
export const SCALE = Number(process.env.T_SCALE || 1)
const LIMIT = 30 // seconds for a check
const WORKERS = 4
const PART = `javascript/${TARGET}`
export const GATEWAY = TARGET === 'gateway'
export const shared = {} // the sandbox that the checks of commands and files share, its home and its user

const checks = []

// check: run(sandbox, own), for both targets; checkDebug the same for celld itself; checkGateway: run(own), which makes
// its sandboxes itself.
export const check = (name, run, limit = LIMIT) => checks.push({ name, run, limit: limit * SCALE })
export const checkDebug = (name, run) => GATEWAY || check(name, run)
export const checkGateway = (name, run) => {
  if (GATEWAY) checks.push({ name, run: (_, own) => run(own), alone: true, limit: LIMIT * SCALE })
}

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))
export const bytes = (text) => new TextEncoder().encode(text)

const short = (value) => {
  const text = value instanceof Error ? `${value.constructor.name}: ${value.message}` : JSON.stringify(value)
  return text === undefined || text.length <= 300 ? text : `${text.slice(0, 200)}... (${text.length} characters)`
}

export function eq(seen, expected, what = '') {
  try {
    assert.deepEqual(seen, expected)
  } catch {
    throw new Failed(`${what ? what + ': ' : ''}expected ${short(expected)}, saw ${short(seen)}`)
  }
}

export function ok(condition, expected, seen) {
  if (!condition) throw new Failed(`expected ${expected}, saw ${short(seen)}`)
}

class Failed extends Error {}

// The call must fail with exactly that class, and say `text`.
export async function raises(wanted, call, text = '') {
  let result
  try {
    result = await call()
  } catch (error) {
    if (error?.constructor !== wanted) throw new Failed(`expected ${wanted.name}, saw ${short(error)}`)
    ok(error.message.includes(text), `a message with '${text}'`, error.message)
    return error
  }
  throw new Failed(`expected ${wanted.name}, saw the result ${short(result)}`)
}

// Ask until the answer is true; the last answer is what a failure shows.
export async function eventually(probe, expected, seconds = 10) {
  const end = Date.now() + seconds * 1000 * SCALE
  for (;;) {
    const seen = await probe()
    if (seen) return seen
    ok(Date.now() < end, `${expected} within ${seconds} s`, seen)
    await sleep(50)
  }
}

// A promise with its two ends outside.
export function deferred() {
  const ends = {}
  ends.promise = new Promise((resolve, reject) => Object.assign(ends, { resolve, reject }))
  return ends
}

export async function joined(stream) {
  const chunks = []
  for await (const chunk of stream) chunks.push(chunk)
  return Buffer.concat(chunks)
}

export const stdout = async (sandbox, command, options) => (await sandbox.commands.run(command, options)).stdout

// What one check made.
class Own {
  dirs = []
  boxes = []

  async dir(sandbox, suffix = '') {
    const path = `${shared.base}/sdk-${crypto.randomUUID().slice(0, 13)}${suffix}`
    this.dirs.push([sandbox, path])
    await sandbox.files.makeDir(path)
    return path
  }

  async sandbox(options = {}, template = 'base') {
    return this.keep(await Sandbox.create(template, { timeoutMs: 120000, ...options }))
  }

  keep(sandbox) {
    this.boxes.push(sandbox)
    return sandbox
  }

  // Best effort: some checks remove their directory or kill their sandbox themselves.
  async clean() {
    for (const [sandbox, path] of this.dirs) await sandbox.files.remove(path).catch(() => {})
    for (const sandbox of this.boxes) await sandbox.kill().catch(() => {})
  }
}

async function one({ run, alone }) {
  const own = new Own()
  try {
    const sandbox = alone ? null : GATEWAY ? await Sandbox.connect(shared.id) : await Sandbox.create()
    await run(sandbox, own)
  } finally {
    await own.clean()
  }
}

async function limited(item) {
  let timer
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Failed(`expected an end within ${item.limit} s, saw none`)), item.limit * 1000)
  })
  try {
    await Promise.race([one(item), late])
  } finally {
    clearTimeout(timer)
  }
}

function describe(error) {
  if (error instanceof Failed) return error.message
  const where = /check_\w+\.mjs:\d+/.exec(error?.stack ?? '')
  return `expected no error, saw ${short(error)}${where ? ` (${where[0]})` : ''}`
}

async function prepare() {
  const sandbox = GATEWAY ? await Sandbox.create({ timeoutMs: 900000 }) : await Sandbox.create()
  shared.id = sandbox.sandboxId
  ;[shared.home, shared.user] = (await stdout(sandbox, 'echo $HOME; id -un')).trim().split('\n')
  shared.base = GATEWAY ? shared.home : process.env.SDK_SCRATCH
}

export async function main(only) {
  let unhandled = 0
  process.on('unhandledRejection', (error) => {
    unhandled++
    console.log(`FAIL ${PART} unhandled rejection: ${describe(error).replace(/\s+/g, ' ')}`)
  })
  await prepare()
  const todo = checks.filter(({ name }) => !only.length || only.some((start) => name.startsWith(start)))
  const total = todo.length
  let failed = 0
  const work = async () => {
    for (let item; (item = todo.shift()); ) {
      const start = Date.now()
      try {
        await limited(item)
        if (process.env.V) console.log(`ok   ${PART} ${item.name} ${(Date.now() - start) / 1000} s`)
      } catch (error) {
        failed++
        console.log(`FAIL ${PART} ${item.name}: ${describe(error).replace(/\s+/g, ' ')}`)
      }
    }
  }
  await Promise.all(Array.from({ length: WORKERS }, work))
  if (GATEWAY) await Sandbox.kill(shared.id)
  console.log(`${PART}: ${total - failed} passed, ${failed + unhandled} failed`)
  process.exit(failed + unhandled || !total ? 1 : 0)
}
