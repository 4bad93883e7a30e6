import { existsSync } from 'node:fs'
import { join } from 'node:path'
import type { Database } from '../../../database/connection.js'
import { createLog, type Logger } from '../../../log/log.js'
import { links, runTool } from '../../../network/local/ip-command.js'
import { isBridge } from '../../../network/local/names.js'
import { namespaceExists } from '../../../network/local/namespace.js'
import type { OvnPlace } from '../../../network/ovn/desired-topology.js'
import { gatewayNames } from '../../../network/ovn/gateway-names.js'
import { type Datapath, OwnOvn } from '../../../network/ovn/own/daemons.js'
import { createTopologyKeeper, TopologyRefused } from '../../../network/ovn/topology-keeper.js'
import { Northbound } from '../../../ovn/northbound/northbound.js'
import { Southbound } from '../../../ovn/southbound/southbound.js'
import { type OvsdbAddress, parseOvsdbAddresses } from '../../../ovsdb/address.js'
import type { OvsdbTls } from '../../../ovsdb/connection.js'
import { OvsdbUnreachable } from '../../../ovsdb/errors.js'
import { watchRows } from '../../../provider/ovn/due.js'
import { watchHealth } from '../../../provider/ovn/health/watch.js'
import type { ProviderOffers, ProviderParts } from '../../../provider/providers.js'
import { OperatorError } from '../../operator-error.js'
import { print } from '../../terminal.js'
import { fabricOf, networkDriverOf, offersOf, recordedOvn, requireInstanceId } from '../drivers.js'
import { databaseUrl, type Instance, openDatabase } from '../instance.js'
import { hostLegName } from './host-networks.js'
import { recordOvn, requireChassis, requireNoTwin, requireSameOvn, tlsOf } from './standing-ovn.js'

/** The kernel's, if its module is loaded. */
const ownDatapath = (): Datapath => (existsSync('/sys/module/openvswitch') ? 'system' : 'netdev')

/** Nothing else loads the module: the service of Debian's package, which would, does not run. Some kernels lack it. */
const loadDatapath = async (): Promise<void> =>
  void (await runTool(['modprobe', '--quiet', 'openvswitch'], '').catch(() => undefined))

/** Whether networks are in OVN, whoever keeps it. */
export const usesOvn = (instance: Instance): boolean => networkDriverOf(instance).switching === 'ovn'

/** Whether Krater runs an OVN of its own. */
export const hasOwnOvn = (instance: Instance): boolean =>
  usesOvn(instance) && instance.config.ovn.northbound === undefined

/** What flavors, zones and providers may be here. */
export const providerOffers = (instance: Instance): ProviderOffers => ({
  compute: offersOf(instance),
  ovn: usesOvn(instance) ? { datapath: hasOwnOvn(instance) ? ownDatapath() : null } : null,
})

/** The OVN of an installation: its daemons run in the fabric. */
export function ownOvnOf(directory: string): OwnOvn {
  const instance = requireInstanceId(directory)
  return new OwnOvn({
    ...{ stateDirectory: directory, namespace: fabricOf(directory).namespace },
    ...{ instance, datapath: ownDatapath() },
  })
}

type Servers = { addresses: readonly OvsdbAddress[]; tls: OvsdbTls | undefined }

/** @throws OperatorError for a file of certificates that cannot be read */
function serversOf({ directory, config }: Instance, which: 'northbound' | 'southbound'): Servers {
  const text = config.ovn[which]
  const addresses = text === undefined ? null : parseOvsdbAddresses(text)
  if (addresses !== null) return { addresses, tls: tlsOf(config.ovn) }
  const { socket } = ownOvnOf(directory).layout.databases[which]
  return { addresses: [{ kind: 'unix', path: socket }], tls: undefined }
}

export const openNorthbound = (instance: Instance, log: Logger): Northbound =>
  new Northbound({ ...serversOf(instance, 'northbound'), instance: requireInstanceId(instance.directory), log })

export const openSouthbound = (instance: Instance, log: Logger): Southbound =>
  new Southbound({ ...serversOf(instance, 'southbound'), log })

type OpenOvn = { provider: ProviderParts['ovn']; stop: () => Promise<void> }

/** What the provider in OVN needs, with what follows OVN for it; nothing without networks in OVN. */
export async function openOvn(
  instance: Instance,
  { database, networkDatabase, log }: { database: Database; networkDatabase: Database; log: Logger },
): Promise<OpenOvn> {
  if (!usesOvn(instance)) return { provider: null, stop: async () => undefined }
  const northbound = openNorthbound(instance, log)
  const southbound = openSouthbound(instance, log)
  const installation = requireInstanceId(instance.directory)
  const health = watchHealth({ database, northbound, southbound, instance: installation, log })
  const rows = await watchRows({
    ...{ database, networkDatabase, networkUrl: databaseUrl(instance, 'network'), northbound, log },
  })
  return {
    provider: { networkDatabase, northbound, southbound, health, instance: installation },
    stop: async () => {
      await Promise.all([rows.stop(), health.stop()])
      await Promise.all([northbound.stop(), southbound.stop()])
    },
  }
}

/**
 * What networks in OVN depend on besides their tables.
 * @param databases follow OVN
 */
export function ovnPlaceOf(
  instance: Instance,
  databases: { northbound: Northbound; southbound: Southbound },
): OvnPlace {
  const id = requireInstanceId(instance.directory)
  const legs: Readonly<Record<string, 'mgmt' | 'pub'>> = { management: 'mgmt', public: 'pub' }
  const isOwn = hasOwnOvn(instance)
  return {
    instance: id,
    hostLegOf: builtIn => {
      const leg = legs[builtIn]
      return leg === undefined ? null : hostLegName(id, leg)
    },
    // Each network of our own OVN has a bridge of its own. Others map physical networks, as OVN's users do.
    isPhysicalByNetwork: isOwn,
    gateways: () => gatewayNames({ ...databases, instance: id }),
  }
}

/**
 * Bridges and OVN cannot both connect what is there.
 * @throws OperatorError if an installation has been started with another network driver, or another OVN
 */
export async function requireSameSwitching(instance: Instance): Promise<void> {
  const { directory } = instance
  const { name, switching } = networkDriverOf(instance)
  const isInOwn = existsSync(ownOvnOf(directory).layout.directory)
  const other = recordedOvn(directory)
  const remedy = 'Set it back, or remove everything with `krater down --all`.'
  if (switching === 'bridges' && (isInOwn || other !== null))
    throw new OperatorError(`The networks of ${directory} are in OVN, and network.driver is ${name}. ${remedy}`)
  if (switching !== 'ovn') return
  if (isInOwn && !hasOwnOvn(instance))
    throw new OperatorError(
      `The networks of ${directory} are in an OVN of its own, and ovn.northbound is set. ${remedy}`,
    )
  if (other !== null && hasOwnOvn(instance))
    throw new OperatorError(`The networks of ${directory} are in another OVN, and ovn.northbound is not set. ${remedy}`)
  if (other !== null) requireSameOvn(other, instance.config.ovn)
  if (isInOwn || other !== null) return
  const fabric = fabricOf(directory)
  const hasBridges =
    namespaceExists(fabric.namespace) && (await links(fabric.namespace)).some(({ ifname }) => isBridge(ifname))
  if (hasBridges)
    throw new OperatorError(`The networks of ${directory} are bridges, and network.driver is ovn. ${remedy}`)
}

/**
 * Starts OVN where the fabric is, or finds the one that stands, and makes the networks there, so that the host can be
 * connected to them.
 * @throws OperatorError if OVN cannot be used
 */
export async function prepareOvn(instance: Instance): Promise<void> {
  const { directory, config } = instance
  await fabricOf(directory).ensure()
  if (hasOwnOvn(instance)) {
    await loadDatapath()
    await ownOvnOf(directory).ensure()
  }
  const log = createLog('up', 'silent')
  const northbound = openNorthbound(instance, log)
  const southbound = openSouthbound(instance, log)
  const database = openDatabase(instance, 'network', 'up')
  const keeper = createTopologyKeeper(northbound, ovnPlaceOf(instance, { northbound, southbound }), { log })
  try {
    await Promise.all([northbound.client.ready(READY_MS), southbound.client.ready(READY_MS)])
    if (!hasOwnOvn(instance)) {
      await requireChassis(config.ovn, southbound)
      if (recordedOvn(directory) === null) requireNoTwin(northbound, requireInstanceId(directory))
      recordOvn(directory, config.ovn)
    }
    await keeper.keep(database)
  } catch (error) {
    // The rest stands. The network worker tries again.
    if (error instanceof TopologyRefused) return print(`Warning: ${error.message}`)
    if (!(error instanceof OvsdbUnreachable)) throw error
    const where = hasOwnOvn(instance)
      ? `its logs are in ${join(directory, 'ovn')}`
      : 'see the settings `ovn`, and whether its servers run'
    throw new OperatorError(`${error.message} What to do: ${where}.`)
  } finally {
    keeper.stop()
    await Promise.all([northbound.stop(), southbound.stop(), database.destroy()])
  }
}

/** For a cluster to choose a leader. */
const READY_MS = 15_000
