import { readFileSync } from 'node:fs'
import { pino } from 'pino'
import type { MachineSpec } from '../../../controller/compute/driver.js'
import type { Port } from '../../../controller/network/driver.js'
import { Fabric } from '../../../controller/network/local/fabric.js'
import { SHARES } from './machine-shares.js'
import { openVirtualDriver } from './virtual-driver.js'

/** A process that changes one virtual machine and is killed during it. Reads its orders as JSON from standard input. */
export type ChangerOrders = { instance: string; directory: string } & (
  | { change: 'create'; spec: MachineSpec; heartbeatKey: string }
  | { change: 'plug' | 'unplug' | 'delete'; amphoraId: string; port: Port }
)

const orders = JSON.parse(readFileSync(0, 'utf8')) as ChangerOrders
const { instance, directory } = orders
const driver = openVirtualDriver({
  instance,
  directory,
  fabric: new Fabric({ instance }),
  networkMtu: async () => 1500,
  portFilters: async () => null,
  accounts: SHARES.accounts,
  log: pino({ level: 'silent' }),
})
if (orders.change === 'create') {
  const { spec, heartbeatKey } = orders
  await driver.create({ ...spec, identity: { ...spec.identity, heartbeatKey: Buffer.from(heartbeatKey, 'hex') } })
} else if (orders.change === 'plug') {
  await driver.plug(orders.amphoraId, orders.port, 'tests')
} else if (orders.change === 'delete') {
  await driver.delete(orders.amphoraId)
} else {
  await driver.unplug(orders.amphoraId, orders.port.id)
}
