import { createLog } from '../../../log/log.js'
import { computeDriverOf, hostMachines } from '../../wiring/drivers.js'
import type { Instance } from '../../wiring/instance.js'
import { withAgents } from './agents.js'
import { type AmphoraRow, lastHeartbeat } from './rows.js'

/** An amphora's row, machine, heartbeats and agent status, each as far as available. */
export async function describeAmphora(instance: Instance, row: AmphoraRow): Promise<[string, string][]> {
  const { address } = row
  const drivers = computeDriverOf(instance).runsMachines
    ? await hostMachines(instance.directory, createLog('krater', 'warn'))
    : []
  const [machine = null] = (await Promise.all(drivers.map(driver => driver.find(row.id)))).filter(
    found => found !== null,
  )
  const agent =
    address === null
      ? 'has no address yet'
      : await withAgents(instance, agents => agents.status(row.id, address)).catch((error: Error) => error.message)
  return [
    ['id', row.id],
    ['status', row.status],
    ['role', row.role ?? '-'],
    ['load balancer', `${row.loadBalancerId ?? '-'} ${row.loadBalancerName ?? ''}`.trimEnd()],
    ['management address', address ?? '-'],
    ['VRRP address', row.vrrpIp ?? '-'],
    ['created', row.createdAt.toISOString()],
    ['generation', `${row.appliedGeneration} applied, ${row.desiredGeneration ?? '-'} desired`],
    ['last heartbeat', lastHeartbeat(row)],
    ['holds the VIP', vipText(row, typeof agent === 'string' ? undefined : agent.holdsVip)],
    ['machine', machine === null ? 'missing' : `${machine.state}, ${machine.name}`],
    ...(typeof agent === 'string'
      ? ([['agent', agent]] as [string, string][])
      : ([
          ['agent', `${agent.agentVersion}, up ${Math.round(agent.uptimeSeconds)} s, boot ${agent.bootId}`],
          [
            'haproxy',
            `${agent.haproxyVersion}, ${agent.haproxy.running ? `running, pid ${agent.haproxy.pid}, ${agent.haproxy.workers} workers` : 'not running'}`,
          ],
          ['UDP and SCTP', `${agent.datagramListeners ?? 0} listeners`],
          ['keepalived', agent.keepalivedVersion],
          ...agent.interfaces.map(({ name, mac, addresses }): [string, string] => [
            `interface ${name}`,
            `${mac} ${addresses.join(' ')}`,
          ]),
        ] as [string, string][])),
  ]
}

/** @param reported what the agent reports now; undefined when it does not answer */
function vipText({ vrrpMaster }: AmphoraRow, reported: boolean | undefined): string {
  if (reported !== undefined) return String(reported)
  return vrrpMaster === null ? '-' : `${vrrpMaster}, according to its last heartbeat`
}
