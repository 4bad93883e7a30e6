import type { StatusResult } from '../../../../amphora-agent/protocol/messages.js'
import type { Machine } from '../../../compute/driver.js'
import type { EnrolledHost } from '../../../compute/enrolled/hosts.js'
import { createLog } from '../../../log/log.js'
import { readAgentBundle } from '../../../provider/amphora/agent/bundle.js'
import { agentBundle, computeDriverOf, hostMachines } from '../../wiring/drivers.js'
import type { Instance } from '../../wiring/instance.js'
import { withAgents } from './agents.js'
import { enrolledHostOf } from './enrolled/host-of-amphora.js'
import { type AmphoraRow, imageText, lastHeartbeat } from './rows.js'

/** An amphora's row, machine, heartbeats and agent status, each as far as available. */
export async function describeAmphora(instance: Instance, row: AmphoraRow): Promise<[string, string][]> {
  const { address } = row
  const drivers = computeDriverOf(instance).runsMachines
    ? await hostMachines(instance.directory, createLog('krater', 'warn'))
    : []
  const [machine = null] = (await Promise.all(drivers.map(driver => driver.find(row.id)))).filter(
    found => found !== null,
  )
  const host = await enrolledHostOf(instance, row.id)
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
    ['machine', machineText(machine, host)],
    ['compute', `driver ${row.driver ?? '-'}, flavor ${row.flavor ?? '-'}, zone ${row.zone ?? '-'}`],
    ['image', row.imageId === null ? imageText(row) : `${imageText(row)}, sha256 ${row.imageId}`],
    ...(typeof agent === 'string'
      ? ([['agent', agent]] as [string, string][])
      : ([
          ['agent', `${agentText(agent)}, up ${Math.round(agent.uptimeSeconds)} s, boot ${agent.bootId}`],
          ...failureLines(agent),
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

/** Which agent it is, and whether it is the one that this version brings along. */
function agentText({ agentVersion, bundle }: StatusResult): string {
  if (bundle === undefined) return `${agentVersion} (too old to be upgraded in place)`
  const isOwn = bundle === readAgentBundle(agentBundle).sha256
  return `${agentVersion} (${bundle.slice(0, 8)}${isOwn ? '' : ', not the one of this version'})`
}

const failureLines = ({ failedUpgrade: failed }: StatusResult): [string, string][] =>
  failed === undefined ? [] : [['failed upgrade', `${failed.sha256.slice(0, 8)} did not answer: ${failed.output}`]]

/** Of an enrolled host, nobody but its agent says whether it runs. */
function machineText(machine: Machine | null, host: EnrolledHost | null): string {
  if (host !== null) return `the enrolled host ${host.name}`
  if (machine === null) return 'missing'
  return [machine.state, machine.name, ...(machine.notes ?? [])].join(', ')
}

/** @param reported what the agent reports now; undefined when it does not answer */
function vipText({ vrrpMaster }: AmphoraRow, reported: boolean | undefined): string {
  if (reported !== undefined) return String(reported)
  return vrrpMaster === null ? '-' : `${vrrpMaster}, according to its last heartbeat`
}
