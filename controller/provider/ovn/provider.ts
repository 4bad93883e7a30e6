import type { Knex } from 'knex'
import type { Database } from '../../database/connection.js'
import type { LoadBalancerTree } from '../../load-balancer/tree/tree.js'
import type { NetworkDriver } from '../../network/driver.js'
import { AddressTaken, InvalidPortRequest, NoAddressLeft } from '../../network/driver.js'
import type { Northbound } from '../../ovn/northbound/northbound.js'
import { isInstalled, type Progress } from '../../ovn/southbound/installed.js'
import type { Southbound } from '../../ovn/southbound/southbound.js'
import { OvsdbBusy, OvsdbUnreachable, TransactionRefused } from '../../ovsdb/errors.js'
import { ClaimLost, type Provider, ProvisioningFault } from '../provider.js'
import { releaseVipPort } from '../vip-port.js'
import { factsOf } from './facts-of.js'
import { OVN_FAULT } from './faults.js'
import type { HealthWatch } from './health/watch.js'
import type { OvnFacts } from './rows/facts.js'
import { loadBalancerRows } from './rows/load-balancer-rows.js'
import { createSharedAddresses } from './shared-addresses.js'

export type OvnProviderOptions = {
  /** The role of the load balancer service. */
  database: Database
  /** The role of the network service. */
  networkDatabase: Knex
  network: NetworkDriver
  northbound: Northbound
  southbound: Southbound
  health: Pick<HealthWatch, 'touch'>
  /** Of this installation: marks its rows. */
  instance: string
}

type Around = { facts: OvnFacts; isNetworkUp: boolean }

/** From a port in the tables to the rows of its network. */
const NETWORK_LIMIT_MS = 5_000
const DESCRIPTION = 'Load balancers in OVN: without a machine, for layer 4.'

/** Implements load balancers as rows of OVN's northbound database: its hypervisors balance by themselves. */
export function createOvnProvider(options: OvnProviderOptions): Provider {
  const { database, network, northbound, southbound } = options
  const shared = createSharedAddresses(database, network)

  const ensure = async (tree: LoadBalancerTree, { facts, isNetworkUp }: Around, signal: AbortSignal): Promise<void> => {
    const desired = loadBalancerRows(tree, facts)
    // A network that is down has no rows. What waits for it comes with it.
    if (!isNetworkUp) return void (await northbound.ensure([desired], { signal }))
    // The network worker makes what holds them.
    const isPlaced = () => northbound.plan(desired).missingHolders.length === 0
    await northbound.client.until(isPlaced, NETWORK_LIMIT_MS, signal)
    const { standing, missingHolders } = await northbound.ensure([desired], { signal })
    const [missing] = missingHolders
    if (missing !== undefined)
      throw new ProvisioningFault(
        OVN_FAULT.networkNotReady,
        `The network is not in OVN yet: ${missing.table} ${missing.uuid} is missing. Krater tries again.`,
      )
    // What is repaired waits for nobody: thousands may be lost at once.
    if (tree.generation === tree.appliedGeneration) return
    // Who wrote the rows may have died before they were installed.
    const progress = await southbound.installed(standing, { raise: () => northbound.raise(signal), signal })
    if (isInstalled(progress)) return
    throw new ProvisioningFault(OVN_FAULT.notInstalled, notInstalled(progress))
  }

  const converge = async (tree: LoadBalancerTree, signal: AbortSignal): Promise<void> => {
    if (tree.change === 'delete') {
      await ensure(tree, { facts: nothingAround(options.instance), isNetworkUp: true }, signal)
      await shared.useOnly(tree.id, [])
      await releaseVipPort(network, tree)
      return
    }
    const { addresses, ...around } = await factsOf(tree, options, shared)
    signal.throwIfAborted()
    await ensure(tree, around, signal)
    await shared.useOnly(tree.id, addresses)
  }

  return {
    name: 'ovn',
    description: DESCRIPTION,
    converge: async (_claim, tree, signal) => {
      try {
        await converge(tree, signal)
        options.health.touch(tree.id)
      } catch (error) {
        throw faultOf(error, signal)
      }
    },
  }
}

function notInstalled({ isComputed, behind, away }: Progress): string {
  if (!isComputed) return 'OVN has not worked out the change in time: ovn-northd may not run. Krater tries again.'
  const late = [...behind, ...away].map(({ hostname }) => hostname)
  return late.length === 0
    ? 'OVN has no hypervisor that could carry out the change. Krater tries again.'
    : `These hypervisors have not installed the change in time: ${late.join(', ')}. Krater tries again.`
}

/** What the owner of a load balancer reads of an error. */
function faultOf(error: unknown, signal: AbortSignal): unknown {
  if (signal.aborted) return new ClaimLost()
  if (error instanceof OvsdbUnreachable)
    return new ProvisioningFault(OVN_FAULT.unreachable, 'OVN cannot be reached.', { cause: error })
  if (error instanceof OvsdbBusy)
    return new ProvisioningFault(OVN_FAULT.unreachable, 'OVN does not keep up with what it is asked.', { cause: error })
  if (error instanceof TransactionRefused)
    return new ProvisioningFault('ovn-refused', 'OVN refuses the change.', { cause: error })
  if (error instanceof NoAddressLeft) return new ProvisioningFault('no-address-left', error.message)
  if (error instanceof AddressTaken || error instanceof InvalidPortRequest)
    return new ProvisioningFault('no-vip-port', error.message)
  return error
}

const nothingAround = (instance: string): OvnFacts => ({
  instance,
  ...{ vips: [], floatingIps: [], clientNetworks: [], gatewayRouters: [], entrances: [] },
  probes: new Map(),
})
