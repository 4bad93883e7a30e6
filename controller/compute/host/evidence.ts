import { DATAGRAM_TABLE } from '../../../amphora-agent/protocol/datagrams.js'
import { METRICS_PORT } from '../../../amphora-agent/protocol/paths.js'
import { PING_PORT } from '../../../amphora-agent/protocol/ping.js'
import type { Inspection } from '../driver.js'

/** What shows whether a machine serves: facts of its kernel, whoever reads them. */
export type Evidence = {
  /** HAProxy's processes, with their states in /proc. */
  haproxy: readonly { pid: number; parent: number; state: string }[]
  /** The port of each listening TCP socket, in ascending order; those of sshd and of the agent are among them. */
  ports: readonly number[]
  /** Names of its nftables tables of the family inet. */
  tables: readonly string[]
}

/** Process states without execution: stopped, traced, dead and zombie. */
const STANDSTILL = /^[TtXZ]$/
/** Of sshd and of the agent: one socket each, on the management or the loopback address. */
const OWN_PORTS = [22, PING_PORT, METRICS_PORT]

export const standsStill = (state: string): boolean => STANDSTILL.test(state)

/** Whether HAProxy is alive and listens, and whether the kernel forwards UDP and SCTP. Pure. */
export function judge(evidence: Evidence): Inspection {
  const { serves, finding } = judgeHaproxy(evidence)
  const forwards = evidence.tables.includes(DATAGRAM_TABLE)
  return { serves, forwards, finding: forwards ? `${finding}; the kernel forwards UDP and SCTP` : finding }
}

function judgeHaproxy({ haproxy, ports }: Evidence): Omit<Inspection, 'forwards'> {
  // The master only waits for its workers.
  const parents = new Set(haproxy.map(({ parent }) => parent))
  const workers = haproxy.filter(({ pid }) => !parents.has(pid))
  if (workers.length === 0) return { serves: false, finding: 'HAProxy is not running' }
  if (workers.every(({ state }) => standsStill(state))) return { serves: false, finding: 'HAProxy is stopped' }
  // A tenant's listener may use the same port on a VIP.
  const others = OWN_PORTS.reduce((left, own) => withoutOne(left, own), ports)
  return others.length === 0
    ? { serves: false, finding: 'HAProxy listens on no port' }
    : { serves: true, finding: `HAProxy runs and listens on ${[...new Set(others)].join(', ')}` }
}

function withoutOne(ports: readonly number[], port: number): readonly number[] {
  const index = ports.indexOf(port)
  return index < 0 ? ports : ports.toSpliced(index, 1)
}
