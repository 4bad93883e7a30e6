import type { PluggedPort } from '../../../compute/driver.js'
import { canBeCutOff, patienceSeconds } from '../../../compute/placement.js'
import type { Database } from '../../../database/connection.js'
import type { LoadBalancerTree } from '../../../load-balancer/tree/tree.js'
import { addressesOf, type NetworkDriver, PORT_OWNER, type Port, type Subnet } from '../../../network/driver.js'
import type { Claim } from '../../../queue/claim.js'
import { agentTarget, probeAgent } from '../agent/agent.js'
import { desiredSubnetIds } from '../plan/desired-ports.js'
import type { AmphoraRow, Observed, ObservedAmphora } from '../plan/observation.js'
import { servesAll } from '../plan/plan-unreachable.js'
import { readAmphorae, recordAgent } from './amphora-rows.js'
import type { MachineParts } from './machine.js'

export type Observing = {
  parts: MachineParts & { database: Database }
  claim: Claim
  tree: LoadBalancerTree
  /** Ports created in this attempt: the noop driver keeps no state and does not list them. */
  createdPorts: ReadonlyMap<string, Port>
}

/** This process's observation when it last settled a load balancer, and the claim's fence at that time. */
export type Remembered = { fence: number; observed: Observed }

/**
 * Observes the load balancer's real state. One query suffices if this process's last observation is still valid:
 * nobody else has claimed the load balancer since (according to the fence), no recheck is due, nothing failed,
 * and the amphorae have sent recent heartbeats.
 */
export async function observe(
  context: Observing,
  remembered: Remembered | null,
  staleAfterSeconds: number,
): Promise<Observed> {
  const { parts, claim, tree } = context
  const { amphorae, suspicious } = await readAmphorae(parts.database, claim)
  if (tree.change === 'delete')
    return { amphorae: amphorae.map(unobserved), vipPort: null, subnets: [], mtus: new Map() }
  if (remembered !== null && !suspicious && claim.fence - remembered.fence <= 1) {
    const recalled = recall(tree, amphorae, remembered.observed, staleAfterSeconds)
    if (recalled !== null) return recalled
  }
  return observeAnew(context, amphorae)
}

function recall(
  tree: LoadBalancerTree,
  rows: readonly AmphoraRow[],
  observed: Observed,
  staleAfterSeconds: number,
): Observed | null {
  if (rows.length !== observed.amphorae.length) return null
  if (!desiredSubnetIds(tree).every(id => observed.subnets.some(subnet => subnet.id === id))) return null
  const amphorae: ObservedAmphora[] = []
  for (const row of rows) {
    const before = observed.amphorae.find(({ id }) => id === row.id)
    if (before === undefined || before.agent.state !== 'answers') return null
    // The amphora with the VIP is replaced last, and which one that is may have changed.
    if (row.replacing || row.needsApply || row.silentSeconds > staleAfterSeconds) return null
    const { appliedGeneration, appliedSha256 } = row
    amphorae.push({ ...before, ...row, agent: { ...before.agent, appliedGeneration, appliedSha256 } })
  }
  return { ...observed, amphorae }
}

/** Queries network, compute and agents. */
async function observeAnew({ parts, tree, createdPorts }: Observing, rows: readonly AmphoraRow[]): Promise<Observed> {
  const { network } = parts
  const [amphorae, desired, vipPort] = await Promise.all([
    Promise.all(rows.map(row => observeAmphora(parts, tree, row, createdPorts))),
    network.subnets(desiredSubnetIds(tree)),
    createdPorts.get(tree.id) ?? (tree.vip.portId === null ? null : network.port(tree.vip.portId)),
  ])
  const ids = new Set(amphorae.flatMap(({ ports }) => ports.flatMap(port => port.fixedIps.map(one => one.subnetId))))
  for (const { id } of desired) ids.delete(id)
  const subnets = ids.size === 0 ? desired : [...desired, ...(await network.subnets([...ids]))]
  return { amphorae, subnets, vipPort, mtus: await mtusOf(network, subnets) }
}

async function observeAmphora(
  parts: Observing['parts'],
  tree: LoadBalancerTree,
  row: AmphoraRow,
  createdPorts: ReadonlyMap<string, Port>,
): Promise<ObservedAmphora> {
  const { compute, network, agents, masterKey } = parts
  const [machine, listed] = await Promise.all([compute.find(row.id), network.portsOf(row.id)])
  const ports = new Map(listed.map(port => [port.id, port]))
  for (const port of createdPorts.values()) if (port.deviceId === row.id) ports.set(port.id, port)
  const observed: ObservedAmphora = {
    ...unobserved(row),
    patienceSeconds: machine === null ? 0 : patienceSeconds(parts.placement, machine.driver),
    canBeCutOff: machine === null || canBeCutOff(parts.placement, machine.driver),
    // Without a recorded address, the machine counts as absent: creating it again is harmless and yields the address.
    machine: row.managementAddress === null ? 'absent' : (machine?.state ?? 'absent'),
    ports: [...ports.values()].filter(port => port.deviceOwner === PORT_OWNER.amphora),
  }
  if (observed.machine !== 'running' || row.managementAddress === null) return observed
  const [interfaces, agent] = await Promise.all([
    compute.pluggedPorts(row.id),
    probeAgent(agents, agentTarget(masterKey, row.id, row.managementAddress)),
  ])
  const plugged = interfaces.filter(one => sendsFromAll(one, ports.get(one.id))).map(({ id }) => id)
  const plain = { ...observed, plugged, interfaces, agent }
  if (row.status === 'ALLOCATED') await recordAgent(parts.database, row.id, agent)
  if (agent.state === 'answers') return { ...plain, heldVip: agent.holdsVip ?? row.heldVip }
  const inspection = await compute.inspect(row.id)
  return { ...plain, serves: inspection === null ? null : servesAll(tree, inspection) }
}

/** False if the interface may not send from all of the port's addresses yet, because a worker died in between. */
const sendsFromAll = ({ addresses }: PluggedPort, port: Port | undefined): boolean =>
  port === undefined || addresses === null || addressesOf(port).every(address => addresses.includes(address))

const unobserved = (row: AmphoraRow): ObservedAmphora => ({
  ...row,
  machine: 'absent',
  ports: [],
  plugged: [],
  interfaces: [],
  agent: { state: 'unreachable' },
  patienceSeconds: 0,
  canBeCutOff: true,
  serves: null,
})

async function mtusOf(network: NetworkDriver, subnets: readonly Subnet[]): Promise<Map<string, number>> {
  const ids = [...new Set(subnets.map(subnet => subnet.networkId))]
  const networks = await Promise.all(ids.map(id => network.network(id)))
  return new Map(networks.flatMap(found => (found === null ? [] : [[found.id, found.mtu] as const])))
}
