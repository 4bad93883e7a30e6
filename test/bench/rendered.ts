import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { planTransition } from '../../amphora-agent/haproxy/plan-transition.js'
import type { HaproxyPart } from '../../amphora-agent/protocol/desired.js'
import { HAPROXY_LOG_LINE } from '../../amphora-agent/protocol/paths.js'
import { renderDesired } from '../../controller/provider/amphora/rendering/desired.js'
import { aListener, aMember, aPool, aTree, someFacts, uuid } from '../golden/models.js'
import { ownPorts } from '../support/ports.js'
import { startHaproxy } from '../support/services/haproxy.js'
import { processorSeconds } from './instance.js'
import { type Contestant, ROUNDS, rowsOf, SECONDS, tableOf, takeTurns } from './turns.js'
import { type Load, load, startMembers } from './wrk.js'

/** Kinds of requests, such as `new connections`; all by default. */
const CHOSEN = new RegExp(process.env.BENCH_REQUESTS ?? '')
const MEMBERS = 2
const MODES = ['http', 'tcp'] as const

type Mode = (typeof MODES)[number]

const KINDS: readonly (Omit<Load, 'port' | 'seconds'> & { name: string })[] = [
  { name: 'kept connections', connections: 32, path: '/small', newConnections: false },
  { name: 'new connections', connections: 32, path: '/small', newConnections: true },
  { name: '1 MiB bodies', connections: 8, path: '/large', newConnections: false },
]

/**
 * What a careful engineer would write by hand for the same guarantees. A request goes to another member when
 * its member cannot be reached (`retries`, `redispatch`), is never sent twice, and a client's first one uses no
 * connection that its member may be closing (`http-reuse safe`): with `always`, HAProxy 2.6 answers it with
 * 502, and `retry-on empty-response` would repeat orders and payments. Slow headers time out, faults are logged
 * and requests are not, and bodies go through kernel pipes.
 * @param maxconn as in the rendered one
 */
const handTuned = (ports: readonly number[], members: readonly number[], maxconn: string) => `global
    stats socket /run/krater/haproxy.sock mode 600 level admin
    ${HAPROXY_LOG_LINE}
    user haproxy
    group haproxy
    chroot /run/haproxy-root
    maxconn ${maxconn}
    maxpipes 250

defaults
    log global
    option dontlognull
    option dontlog-normal
    option splice-request
    option splice-response
    option redispatch
    retries 3
    timeout connect 5s
    timeout client 50s
    timeout server 50s
    timeout http-request 10s
    timeout tunnel 1h
${MODES.map(
  (mode, at) => `
frontend ${mode}-in
    mode ${mode}
    option ${mode}log
    bind 127.0.0.1:${ports[at]}
    default_backend ${mode}-out

backend ${mode}-out
    mode ${mode}
    balance roundrobin
${mode === 'http' ? '    http-reuse safe\n' : ''}${members.map((port, at) => `    server member-${at} 127.0.0.1:${port}\n`).join('')}`,
).join('')}`

/** One HTTP and one TCP listener, each with its own pool. */
function rendered(ports: readonly number[], members: readonly number[]): HaproxyPart {
  const numbered = MODES.map((mode, at) => ({ number: at + 1, protocol: mode === 'http' ? 'HTTP' : 'TCP' }) as const)
  const tree = aTree({
    listeners: numbered.map(({ number, protocol }) =>
      aListener(number, { protocol, protocolPort: ports[number - 1] ?? 0, defaultPoolId: uuid(3, number) }),
    ),
    pools: numbered.map(({ number, protocol }) =>
      aPool(number, {
        protocol,
        members: members.map((port, at) =>
          aMember(number * 100 + at, { serverNumber: at + 1, address: '127.0.0.1', protocolPort: port }),
        ),
      }),
    ),
  })
  const { haproxy } = renderDesired({ ...tree, vip: { ...tree.vip, address: '127.0.0.1' } }, someFacts())
  if (haproxy === null) throw new Error('Nothing was rendered.')
  return haproxy
}

/** The agent's commands to HAProxy when these members join. */
function joining(applied: HaproxyPart, desired: HaproxyPart): string[] {
  const plan = planTransition(applied, desired, { running: true, hasOldWorkers: false, leaving: [], now: 0 })
  if (plan.kind !== 'runtime') throw new Error('Members cannot join at runtime.')
  return plan.commands.map(({ text }) => text)
}

type Served = Contestant & { ports: Record<Mode, number> }

/** The first one is the reference for the others. */
async function startContestants(directory: string, members: readonly number[]): Promise<Served[]> {
  const started: Served[] = []
  const begin = async (name: string, ports: readonly number[], text: string, commands: readonly string[] = []) => {
    const place = join(directory, name.replaceAll(' ', '-'))
    mkdirSync(place)
    const running = await startHaproxy(place, text)
    const [http = 0, tcp = 0] = ports
    started.push({ name, ports: { http, tcp }, cpu: () => processorSeconds(running.pid), stop: running.stop })
    for (const command of commands) await running.command(command)
  }
  try {
    const fromFile = await ownPorts(MODES.length)
    const file = rendered(fromFile, members)
    const byHand = await ownPorts(MODES.length)
    await begin('hand-tuned', byHand, handTuned(byHand, members, /^ {4}maxconn (\d+)$/m.exec(file.text)?.[1] ?? ''))
    await begin('members from the file', fromFile, file.text)
    const atRuntime = await ownPorts(MODES.length)
    const empty = rendered(atRuntime, [])
    await begin('members joined at runtime', atRuntime, empty.text, joining(empty, rendered(atRuntime, members)))
    return started
  } catch (error) {
    for (const { stop } of started) await stop()
    throw error
  }
}

/**
 * Requests through the configuration that Krater renders, compared with a handwritten one, on the same HAProxy
 * and in the same run: the contestants take turns, so that other work on the machine affects them equally.
 * @returns a table, as Markdown
 */
export async function benchRendered(): Promise<string> {
  const directory = mkdtempSync(join(tmpdir(), 'krr-'))
  const members = await ownPorts(MEMBERS)
  const stopMembers = await startMembers(directory, members)
  const contestants = await startContestants(directory, members).catch(async error => {
    await stopMembers()
    throw error
  })
  try {
    const rows: string[] = []
    for (const mode of MODES) {
      for (const { name, ...kind } of KINDS.filter(({ name }) => CHOSEN.test(name))) {
        const measured = await takeTurns(contestants, ({ ports }) =>
          load({ ...kind, port: ports[mode], seconds: SECONDS }),
        )
        rows.push(...rowsOf(`${mode.toUpperCase()}, ${name}`, contestants, measured))
      }
    }
    return tableOf(
      `nginx with ${MEMBERS} members, wrk and HAProxy share this machine; ${ROUNDS} turns of ${SECONDS} s each. CPU time is HAProxy’s for one request. A ratio is the median over the turns, with the least and the greatest.`,
      rows,
    )
  } finally {
    for (const { stop } of contestants) await stop()
    await stopMembers()
    rmSync(directory, { recursive: true, force: true })
  }
}
