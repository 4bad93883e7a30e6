import { randomUUID } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { createBarbicanSource } from '../../../controller/certificates/barbican/certificate-source.js'
import { startFaultyProxy } from '../../support/faults/faulty-proxy.js'
import { buildChecker } from '../../support/inputs/certificates.js'
import { recordLog } from '../../support/recorded-log.js'
import { createGate } from '../../support/worlds/worker-scene.js'

/** The process that reads keys for a check. test/integration/load-balancer/objects/certificates.test.ts has its verdicts. */

const LOAD_BALANCER = randomUUID()
const CALLER = { token: 'token-of-the-caller', project: 'own', user: 'somebody' }

const sourceAt = (url: string, inspector: { inspectionMilliseconds: number; program: string }) =>
  createBarbicanSource({
    keyManager: { url, security: { insecure: false }, connectTimeoutSeconds: 2, answerSeconds: 10 },
    serviceUser: {
      signedIn: async () => ({ token: 'token-of-the-service-user', userId: 'octavia' }),
      discard: () => undefined,
    },
    inspector,
    log: recordLog().log,
  })

t.test('it has no rights, and ends with the check', async t => {
  const proxy = await startFaultyProxy('http://127.0.0.1:9')
  t.teardown(proxy.stop)
  const program = await buildChecker(t.testdir({}))
  const [gate, reached] = [createGate(), createGate()]
  proxy.behave(async () => {
    reached.open()
    await gate.pass()
    return { status: 404, body: '{}' }
  })
  const source = sourceAt(proxy.url, { inspectionMilliseconds: 1000, program })
  const ref = `${proxy.url}/v1/secrets/${randomUUID()}`
  const verdict = source.check(CALLER, LOAD_BALANCER, { certificates: [ref], authorities: [], revocationLists: [] })
  await reached.pass()
  const [checker, ...others] = checkers(program)
  t.match(checker, { user: '65534 65534 65534 65534', groups: '' })
  t.same(others, [])
  t.notMatch(checker?.command, /token-of/, 'its arguments hold no token')
  gate.open()
  t.same(await verdict, [{ ref, reason: 'it does not exist or you may not use it' }])
  t.same(checkers(program), [])
})

t.test('material that costs too much ends its process, and the others are still checked', async t => {
  // Spins at the first item, as hostile material would have it.
  const spinning = join(t.testdir({}), 'spinning.mjs')
  writeFileSync(
    spinning,
    `import { createInterface } from 'node:readline'
createInterface({ input: process.stdin }).once('line', line => {
  const skip = JSON.parse(line).skip
  if (!skip.includes(1)) console.log(JSON.stringify({ found: 1, inspected: { wrong: 'just words' } }))
  if (!skip.includes(0)) { process.stdout.write('{"begins":0}\\n', () => { for (;;); }) }
  else { console.log(JSON.stringify({ found: 2, inspected: { wrong: 'read by the second' } })); process.stdin.destroy() }
})`,
  )
  const strict = sourceAt('http://127.0.0.1:9', { inspectionMilliseconds: 100, program: spinning })
  const certificates = ['a', 'b', 'c']
  t.same(await strict.check(CALLER, LOAD_BALANCER, { certificates, authorities: [], revocationLists: [] }), [
    { ref: 'a', reason: 'it takes too long or too much memory to read' },
    { ref: 'b', reason: 'just words' },
    { ref: 'c', reason: 'read by the second' },
  ])
})

/** User and groups of the running checkers, as the kernel lists them. */
function checkers(program: string): { command: string; user: string; groups: string }[] {
  const { pid } = process
  const pids = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ')
  const found = pids.filter(Boolean).map(child => {
    const status = readFileSync(`/proc/${child}/status`, 'utf8')
    const field = (name: string) => new RegExp(`^${name}:[\\t ]*(.*)$`, 'm').exec(status)?.[1]?.trim() ?? ''
    const command = readFileSync(`/proc/${child}/cmdline`, 'utf8').replaceAll('\0', ' ')
    return { command, user: field('Uid').replaceAll(/\s+/g, ' '), groups: field('Groups') }
  })
  return found.filter(({ command }) => command.includes(program))
}
