import type { Knex } from 'knex'
import type { LoadBalancerTree } from '../../load-balancer/tree/tree.js'
import type { NetworkDriver, Port, Subnet } from '../../network/driver.js'
import { ProvisioningFault } from '../provider.js'
import { vipPortRequest } from '../vip-port.js'
import { readSurroundings, type Surroundings } from './read-facts.js'
import type { OvnFacts } from './rows/facts.js'
import type { SharedAddress, SharedAddresses } from './shared-addresses.js'

/** Where the facts come from. */
export type OvnSources = {
  network: NetworkDriver
  /** The role of the network service. */
  networkDatabase: Knex
  /** Of this installation. */
  instance: string
}

/** Reads what the rows depend on, and makes the ports that they need. */
export async function factsOf(
  tree: LoadBalancerTree,
  { network, networkDatabase, instance }: OvnSources,
  shared: Pick<SharedAddresses, 'use'>,
): Promise<{ facts: OvnFacts; addresses: SharedAddress[]; isNetworkUp: boolean }> {
  const port = await vipPortOf(tree, network)
  const { networkId } = port
  const vips = [tree.vip, ...tree.additionalVips].map(({ address }) => address)
  const probed = tree.pools.filter(({ healthMonitor }) => healthMonitor !== null && healthMonitor.change !== 'delete')
  const members = [...new Set(probed.flatMap(pool => pool.members.map(({ address }) => address)))]
  const memberSubnets = [...new Set(probed.flatMap(pool => pool.members.flatMap(({ subnetId }) => subnetId ?? [])))]
  const around = await readSurroundings(networkDatabase, {
    ...{ networkId, projectId: tree.projectId, vips, members, memberSubnets },
  })
  const balancer: SharedAddress = { kind: 'balancer', placeId: networkId }
  const fixedIps = port.fixedIps.map(({ subnetId }) => ({ subnetId }))
  await shared.use(tree.id, balancer, { networkId, fixedIps })

  const subnets = new Map(
    (await network.subnets([...new Set(around.machines.map(({ subnetId }) => subnetId))])).map(one => [one.id, one]),
  )
  const sources = new Map<string, string>()
  for (const subnet of subnets.values()) sources.set(subnet.id, await probeSource(tree, subnet, shared))
  const machines = new Map<string, Surroundings['machines']>()
  for (const machine of around.machines)
    machines.set(machine.address, [...(machines.get(machine.address) ?? []), machine])
  const probes = new Map(
    probed.flatMap(pool =>
      pool.members.flatMap((member): [string, { portId: string; source: string }][] => {
        const there = machines.get(member.address) ?? []
        const machine = there.find(({ subnetId }) => subnetId === member.subnetId) ?? there[0]
        const source = machine === undefined ? undefined : sources.get(machine.subnetId)
        return machine === undefined || source === undefined ? [] : [[member.id, { portId: machine.portId, source }]]
      }),
    ),
  )
  return {
    facts: {
      ...{ instance, probes, vips: vips.map(address => ({ address, networkId })) },
      ...{ floatingIps: around.floatingIps, clientNetworks: around.clientNetworks },
      ...{ gatewayRouters: around.gatewayRouters, entrances: around.entrances },
    },
    isNetworkUp: around.isUp,
    addresses: [balancer, ...[...subnets.keys()].map((placeId): SharedAddress => ({ kind: 'probe', placeId }))],
  }
}

async function probeSource(
  tree: LoadBalancerTree,
  subnet: Subnet,
  shared: Pick<SharedAddresses, 'use'>,
): Promise<string> {
  const port = await shared.use(
    tree.id,
    { kind: 'probe', placeId: subnet.id },
    { networkId: subnet.networkId, fixedIps: [{ subnetId: subnet.id }] },
  )
  return port.fixedIps[0]?.address ?? ''
}

/** @throws ProvisioningFault if the user's port is gone */
async function vipPortOf(tree: LoadBalancerTree, network: NetworkDriver): Promise<Port> {
  const { portId, networkId, ownsPort } = tree.vip
  const present = portId === null ? null : await network.port(portId)
  if (present !== null) return present
  if (!ownsPort || networkId === null)
    throw new ProvisioningFault('no-vip-port', `The VIP port ${portId} could not be found.`)
  return network.ensurePort(vipPortRequest(tree, networkId))
}
