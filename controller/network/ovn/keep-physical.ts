import type { Knex } from 'knex'
import type { Logger } from '../../log/log.js'
import type { Fabric } from '../local/fabric.js'
import { ipBatch, linkNamed } from '../local/ip-command.js'
import { bridgeOf } from '../local/names.js'
import { providerNetworks } from '../local/uplinks/provider-networks.js'
import { createUplinkKeeper } from '../local/worker/keep-uplinks.js'
import type { PhysicalNetworks } from '../physical-networks.js'
import { physicalNetworkOf } from './rows/topology.js'

/** How often what nobody changed is looked at. */
const LOOK_MS = 15_000

/** Where a network leads out of OVN: its name there, and a port of the switch on a bridge of its own. */
export type PhysicalPlace = { name: string; bridge: string; port: string }

/** What maps physical networks to bridges of the switch. Safe to repeat. */
export type MapPhysical = (places: readonly PhysicalPlace[]) => Promise<void>

const digits = (networkId: string): string => networkId.replaceAll('-', '').slice(0, 11)
/** At most 15 characters. */
const placeOf = (networkId: string): PhysicalPlace & { peer: string } => ({
  name: physicalNetworkOf(networkId),
  bridge: `ox${digits(networkId)}`,
  port: `oy${digits(networkId)}`,
  peer: `oz${digits(networkId)}`,
})

export type PhysicalOptions = { physicalNetworks: PhysicalNetworks; map: MapPhysical; log: Logger }

/**
 * Joins networks in OVN to physical networks: a bridge of the kernel with the host's uplink, and a pair of interfaces
 * from there to a bridge of the switch, which OVN maps to the network.
 */
export function createPhysicalKeeper(
  fabric: Fabric,
  { physicalNetworks, map, log }: PhysicalOptions,
  now = () => performance.now(),
): { keep: (database: Knex) => Promise<void> } {
  const uplinks = createUplinkKeeper(fabric, { physicalNetworks, log })
  let last: { ids: string; at: number } | null = null
  return {
    keep: async database => {
      await uplinks.keep(database)
      const networks = await providerNetworks(database)
      const ids = networks.map(({ id }) => id).join()
      if (last !== null && last.ids === ids && now() - last.at < LOOK_MS) return
      // Without such networks there has never been anything to keep, or the look after this one finds it gone.
      if (networks.length > 0 || (last !== null && last.ids !== '')) {
        for (const { id, mtu } of networks) await ensurePair(fabric, id, mtu)
        await map(networks.map(({ id }) => placeOf(id)))
      }
      last = { ids, at: now() }
    },
  }
}

/** The pair of interfaces, with one end on the network's bridge of the kernel. */
async function ensurePair(fabric: Fabric, networkId: string, mtu: number): Promise<void> {
  const { port, peer } = placeOf(networkId)
  const bridge = bridgeOf(networkId)
  const present = await linkNamed(fabric.namespace, peer)
  if (present?.master === bridge && (await linkNamed(fabric.namespace, port)) !== null) return
  await fabric.ensureBridge(networkId, mtu)
  const failure = await ipBatch(fabric.namespace, [
    `link add name ${peer} mtu ${mtu} type veth peer name ${port} mtu ${mtu}`,
    `link set dev ${peer} addrgenmode none master ${bridge} up`,
    `link set dev ${port} addrgenmode none up`,
  ])
  if ((await linkNamed(fabric.namespace, peer))?.master !== bridge)
    throw failure ?? new Error(`${peer} did not come up`)
}
