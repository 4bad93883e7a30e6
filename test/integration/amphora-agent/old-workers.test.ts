import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import t from 'tap'
import { Drain } from '../../../amphora-agent/haproxy/drain.js'
import type { Haproxy } from '../../../amphora-agent/haproxy/haproxy.js'

const SESSIONS = 20_000
const silent = { info: () => {}, warn: () => {}, error: () => {} }

/** A process that ignores TERM, like a worker that hangs. */
async function startStubborn(): Promise<ChildProcess> {
  const child = spawn('bash', ['-c', "trap '' TERM; echo ready; while :; do read -r; done"], { stdio: 'pipe' })
  await once(child.stdout, 'data')
  return child
}

t.test('an old worker beyond the limit loses its sessions and is killed', async t => {
  const [worker, younger] = [await startStubborn(), await startStubborn()]
  t.teardown(() => {
    for (const child of [worker, younger]) child.kill('SIGKILL')
  })
  const open = new Set(Array.from({ length: SESSIONS }, (_, i) => `0x${(i + 1).toString(16)}`))
  let roundTrips = 0
  let turns: Promise<unknown> = Promise.resolve()
  const inTurn = <T>(work: () => Promise<T>): Promise<T> => {
    const turn = turns.then(work)
    turns = turn.catch(() => {})
    return turn
  }
  let begun = () => {}
  const closing = new Promise<void>(resolve => {
    begun = resolve
  })
  const haproxy = {
    pid: () => process.pid,
    processes: async () => ({
      workerPid: process.pid,
      oldWorkerPids: [worker, younger].filter(({ signalCode }) => signalCode === null).map(({ pid }) => pid),
    }),
    commandTo: async (_pid: number, ...commands: string[]) => {
      roundTrips += 1
      await new Promise(setImmediate)
      if (commands[0] === 'show sess') {
        return [...open].map(pointer => `${pointer}: proto=tcpv4 be=p:l srv=member-1 ts=00`).join('\n')
      }
      begun()
      for (const command of commands) open.delete(command.split(' ')[2] ?? '')
      return ''
    },
  } as unknown as Haproxy
  const told: string[] = []
  const drain = new Drain({
    haproxy,
    limits: () => ({ most: 1, memoryMib: 10_000 }),
    inTurn,
    onClosed: text => told.push(text),
    log: silent,
  })
  t.teardown(() => drain.close())
  drain.start()

  await closing
  const left = await inTurn(async () => open.size)
  t.ok(left > SESSIONS / 2, `a change gets its turn while ${left} sessions are still open`)
  await once(worker, 'exit')
  t.equal(worker.signalCode, 'SIGKILL', 'the worker ignored TERM')
  t.equal(open.size, 0)
  t.ok(roundTrips < SESSIONS / 50, `${roundTrips} round trips for ${SESSIONS} sessions`)
  t.same(
    told,
    [`${SESSIONS} connections of an old HAProxy worker: more than 1 old workers`],
    'the closing is reported once',
  )
  t.equal(younger.signalCode, null, 'the younger worker is within the limit')
})
