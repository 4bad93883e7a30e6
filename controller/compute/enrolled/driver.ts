import type { Boot } from '../../../amphora-agent/protocol/boot.js'
import type { Database } from '../../database/connection.js'
import type { Logger } from '../../log/log.js'
import { addressesOf, type NetworkDriver, type Port } from '../../network/driver.js'
import {
  type ComputeDriver,
  ComputeUnavailable,
  type CreatedMachine,
  type Machine,
  type MachineSpec,
  NoFreeHost,
  type PluggedPort,
} from '../driver.js'
import type { EnrolledContext } from '../host-agents.js'
import { throughForwarder } from './enrolment/install.js'
import { type EnrolledHost, enrolledHosts, giveUpHost, hostOfAmphora, recordPlugged, takeHost } from './hosts.js'
import { inspectHost } from './inspect-host.js'
import { createTeller } from './tell.js'
import { ASK_MS, takeTurn } from './turn.js'
import { createWiper, freeBoot } from './wipe.js'

export type EnrolledDriverOptions = EnrolledContext & { database: Database; network: NetworkDriver; log: Logger }

/**
 * Machines that ran before Krater knew them. An amphora takes a free one; when the amphora is deleted, the machine is wiped
 * and free again. They belong to no controller: the database says who has which.
 */
export function createEnrolledDriver(options: EnrolledDriverOptions): ComputeDriver {
  const { database, agents, log } = options
  const [wipe, tell] = [createWiper(options), createTeller(options)]

  async function create(spec: MachineSpec): Promise<CreatedMachine> {
    const { amphoraId, placement, apart, networks } = spec
    const { zone } = placement
    const host =
      (await hostOfAmphora(database, amphoraId)) ?? (await takeHost(database, amphoraId, { zone, apart, networks }))
    if (host === null) throw new NoFreeHost(await noneFree(options, zone, networks))
    try {
      await takeTurn(agents, host, bootOf(spec, host))
    } catch (error) {
      // Another one may answer. This one is wiped once it does.
      await giveUpHost(database, amphoraId)
      throw error
    }
    log.info({ amphoraId, host: host.name }, 'an enrolled host has become an amphora')
    return { ...machineOf(amphoraId, host), zone: host.zone, image: null, managementAddress: host.address }
  }

  async function plug(amphoraId: string, port: Port): Promise<PluggedPort> {
    const host = await hostOfAmphora(database, amphoraId)
    if (host === null) throw new Error(`Amphora ${amphoraId} has no enrolled host.`)
    const addresses = addressesOf(port)
    const record = { networkId: port.networkId, addresses, own: port.fixedIps }
    const plugged = pluggedPort(host, port.id, record)
    if (plugged === null) {
      throw new ComputeUnavailable(`The host ${host.name} has no interface on the network ${port.networkId}.`)
    }
    await recordPlugged(database, amphoraId, port.id, record)
    return plugged
  }

  return {
    name: 'enrolled',
    create,
    find: async amphoraId => {
      const host = await hostOfAmphora(database, amphoraId)
      return host === null ? null : machineOf(amphoraId, host)
    },
    list: async () =>
      (await enrolledHosts(database)).flatMap(host =>
        host.state === 'in use' && host.amphoraId !== null ? [machineOf(host.amphoraId, host)] : [],
      ),
    inspect: amphoraId => inspectHost(options, amphoraId),
    delete: async amphoraId => {
      const host = await giveUpHost(database, amphoraId)
      if (host === null) return
      // It serves no more from here on. The wipe may take long, and nobody waits for it.
      await agents.become(host, freeBoot(options, host), ASK_MS).catch((error: unknown) => {
        log.warn(
          { host: host.name, err: error },
          'an enrolled host could not be told to end its amphora; it is tried again',
        )
      })
    },
    plug,
    unplug: async (amphoraId, portId) => {
      await recordPlugged(database, amphoraId, portId, null)
    },
    pluggedPorts: async amphoraId => {
      const host = await hostOfAmphora(database, amphoraId)
      if (host === null) return []
      return Object.entries(host.plugged).flatMap(([id, plugged]) => pluggedPort(host, id, plugged) ?? [])
    },
    tend: async () => {
      await wipe()
      await tell()
    },
    // Its agent reports them.
    brokenInterfaces: async () => [],
  }
}

const machineOf = (amphoraId: string, { id, name }: EnrolledHost): Machine => ({
  amphoraId,
  driver: 'enrolled',
  computeId: id,
  name,
  state: 'running',
})

/** A port on the interface that leads to its network, which keeps its MAC address; null if none does. */
function pluggedPort(
  { interfaces }: EnrolledHost,
  id: string,
  { networkId, addresses }: EnrolledHost['plugged'][string],
): PluggedPort | null {
  const nic = interfaces.find(one => one.networkId === networkId)
  return nic === undefined ? null : { id, addresses, macAddress: nic.mac }
}

/** What an amphora on a host gets. Heartbeats and requests for TLS material go by the forwarder of the host. */
function bootOf(spec: MachineSpec, { id, turn }: EnrolledHost): Boot {
  const { amphoraId, identity, healthManagers, beatIntervalSeconds, keyChannel } = spec
  return {
    amphoraId,
    heartbeatKey: identity.heartbeatKey.toString('hex'),
    heartbeatKeyId: identity.heartbeatKeyId,
    healthManagers: healthManagers.slice(0, 1).map(({ port }) => throughForwarder(port)),
    beatIntervalSeconds,
    keyChannel: {
      ...keyChannel,
      endpoints: keyChannel.endpoints.slice(0, 1).map(({ port }) => throughForwarder(port)),
    },
    host: { id, turn },
  }
}

async function noneFree(
  { database, network }: EnrolledDriverOptions,
  zone: string | null,
  networks: readonly string[],
): Promise<string> {
  const hosts = (await enrolledHosts(database)).filter(host => zone === null || host.zone === zone)
  const where = zone === null ? '' : ` in the zone ${zone}`
  if (hosts.length === 0) return `No host is enrolled${where}.`
  const fitting = hosts.filter(host => networks.every(id => host.interfaces.some(one => one.networkId === id)))
  if (fitting.length === 0) {
    const names = await Promise.all(networks.map(async id => ((await network.network(id)) === null ? [] : [id])))
    return `No enrolled host${where} has an interface on each of the networks ${names.flat().join(', ')}.`
  }
  const counts = (['free', 'in use', 'wiping', 'broken', 'enrolling', 'retiring'] as const).flatMap(state => {
    const count = fitting.filter(host => host.state === state).length
    return count === 0 ? [] : [`${count} ${state === 'free' ? 'free but silent' : state}`]
  })
  return `No enrolled host${where} is free: ${counts.join(', ')}.`
}
