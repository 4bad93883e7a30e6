import { randomUUID } from 'node:crypto'
import { createLog } from '../../../log/log.js'
import type { OvsdbAddress } from '../../../ovsdb/address.js'
import { OvsdbClient } from '../../../ovsdb/client.js'
import type { Row } from '../../../ovsdb/columns.js'
import { OvsdbUnreachable, RowsGone } from '../../../ovsdb/errors.js'
import type { Operation } from '../../../ovsdb/transaction.js'
import type { FabricEnd, Switching } from '../../local/switching.js'
import { SWITCH, type SwitchTables } from './columns.js'

/** The bridge that ovn-controller makes and fills. */
export const INTEGRATION_BRIDGE = 'br-int'
const READY_MS = 5_000
/** From the row of a port to its flows, on a busy host. */
const INSTALL_LIMIT_MS = 15_000
const MAX_ATTEMPTS = 3
/** Key of the `external_ids` of each interface that Krater connects. */
const INSTANCE = 'krater-instance'

type Client = OvsdbClient<SwitchTables>
type Connected = { portUuid: string; connectedAs: string | undefined; isServed: boolean; isInstalled: boolean }

/** What fails is thrown. */
const log = createLog('open-vswitch', 'silent')

export type OpenVSwitchOptions = {
  /** Of its database. */
  address: OvsdbAddress
  /** Of this installation: marks its interfaces. */
  instance: string
  /** Whether it runs in the host's own network namespace. */
  isOnHost: boolean
}

/** @throws OvsdbUnreachable */
async function askSwitch<R>(address: OvsdbAddress, work: (client: Client) => Promise<R>): Promise<R> {
  const client: Client = new OvsdbClient({ addresses: [address], database: 'Open_vSwitch', tables: SWITCH, log })
  try {
    await client.ready(READY_MS)
    return await work(client)
  } finally {
    await client.stop()
  }
}

/**
 * What a switch says of itself: its name as a chassis, and whether it has the bridge of ovn-controller.
 * @throws OvsdbUnreachable
 */
export const chassisOf = (address: OvsdbAddress): Promise<{ systemId: string | null; hasBridge: boolean }> =>
  askSwitch(address, async client => {
    const [own] = client.rows('Open_vSwitch').values()
    const bridges = [...client.rows('Bridge').values()]
    return {
      systemId: own?.external_ids['system-id'] ?? null,
      hasBridge: bridges.some(({ name }) => name === INTEGRATION_BRIDGE),
    }
  })

/** The switch of a chassis, in which OVN connects the interfaces of its logical ports. */
export function openVSwitch({ address, instance, isOnHost }: OpenVSwitchOptions): Switching {
  const ask = <R>(work: (client: Client) => Promise<R>): Promise<R> => askSwitch(address, work)
  const connectIn = async (client: Client, { name, connectedAs }: FabricEnd, columns: NewInterface): Promise<void> => {
    await connect(client, name, { connectedAs, instance, columns })
    const isInstalled = () => connectedOf(client, name)?.isInstalled === true
    if (await client.until(isInstalled, INSTALL_LIMIT_MS)) return
    throw new Error(`OVN has not connected ${name} in time: ${problemOf(client, name, connectedAs)}`)
  }
  return {
    isOnHost,
    usesBridges: false,
    needsChecksums: () => ask(async client => needsChecksums(client)),
    networkLines: () => [],
    linkWords: () => '',
    isConnected: (_link, { name, connectedAs }) =>
      ask(async client => {
        const found = connectedOf(client, name)
        return found !== null && found.isServed && found.connectedAs === connectedAs
      }),
    connect: end => ask(client => connectIn(client, end, {})),
    connectHost: (end, { macAddress, mtu }) =>
      ask(client => connectIn(client, end, { type: 'internal', mac: macAddress, mtu_request: mtu })),
    // A switch that is away connects nothing. What is left in its database is removed by the keeper of the switch.
    disconnect: name =>
      ask(client => disconnect(client, name)).catch((error: unknown) => {
        if (!(error instanceof OvsdbUnreachable)) throw error
      }),
    ends: () =>
      ask(async client =>
        [...client.rows('Interface').values()].flatMap(row =>
          row.external_ids[INSTANCE] === instance ? [row.name] : [],
        ),
      ),
    connected: links =>
      links.length === 0
        ? Promise.resolve([])
        : ask(async client => links.filter(({ ifname }) => connectedOf(client, ifname)?.isServed === true)),
  }
}

/** The kernel's datapath fills them in, and the one in userspace if it is told to. */
function needsChecksums(client: Client): boolean {
  const [own] = client.rows('Open_vSwitch').values()
  if (own?.other_config['userspace-tso-enable'] === 'true') return false
  return client.row('Bridge', bridgeOf(client))?.datapath_type === 'netdev'
}

/** How an interface is connected; null if it is not. */
function connectedOf(client: Client, name: string): Connected | null {
  for (const [portUuid, port] of client.rows('Port')) {
    if (port.name !== name) continue
    const rows = port.interfaces.map(uuid => client.row('Interface', uuid))
    const row = rows.find(one => one?.name === name) ?? null
    const ids = row?.external_ids ?? {}
    return {
      portUuid,
      connectedAs: ids['iface-id'],
      isServed: row !== null && row.ofport !== null && row.ofport > 0,
      isInstalled: ids['ovn-installed'] === 'true',
    }
  }
  return null
}

type NewInterface = Partial<Row<SwitchTables['Interface']>>

/** Others may change the bridge meanwhile: then it looks again. */
async function connect(
  client: Client,
  name: string,
  { connectedAs, instance, columns }: { connectedAs: string; instance: string; columns: NewInterface },
): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    const present = connectedOf(client, name)
    if (present?.connectedAs === connectedAs && present.isServed) return
    const bridge = bridgeOf(client)
    const [interfaceUuid, portUuid] = [randomUUID(), randomUUID()]
    const operations: Operation<SwitchTables>[] = [
      {
        ...{ op: 'insert', table: 'Interface', uuid: interfaceUuid },
        row: { name, external_ids: { 'iface-id': connectedAs, [INSTANCE]: instance }, ...columns },
      },
      { op: 'insert', table: 'Port', uuid: portUuid, row: { name, interfaces: [interfaceUuid] } },
      {
        ...{ op: 'mutate', table: 'Bridge', uuid: bridge },
        mutations: [
          // A dead one is made again, so that the switch opens the interface that has its name now.
          ...(present === null ? [] : [{ column: 'ports' as const, remove: [present.portUuid] }]),
          { column: 'ports', add: [portUuid] },
        ],
      },
    ]
    try {
      return await client.transact(operations, { comment: `krater: ${name}` })
    } catch (error) {
      if (!(error instanceof RowsGone) || attempt === MAX_ATTEMPTS) throw error
    }
  }
}

async function disconnect(client: Client, name: string): Promise<void> {
  const present = connectedOf(client, name)
  if (present === null) return
  const mutations = [{ column: 'ports' as const, remove: [present.portUuid] }]
  await client.transact([{ op: 'mutate', table: 'Bridge', uuid: bridgeOf(client), mutations }], {
    comment: `krater: without ${name}`,
  })
}

/** @throws Error as long as ovn-controller has not made it */
function bridgeOf(client: Client): string {
  for (const [uuid, { name }] of client.rows('Bridge')) if (name === INTEGRATION_BRIDGE) return uuid
  throw new Error(`Open vSwitch has no bridge ${INTEGRATION_BRIDGE}: ovn-controller does not run, or begins just now.`)
}

function problemOf(client: Client, name: string, connectedAs: string): string {
  for (const row of client.rows('Interface').values()) {
    if (row.name === name && row.error !== null) return row.error
  }
  return `the northbound database may lack the logical port ${connectedAs}, or its hypervisor another owner.`
}
