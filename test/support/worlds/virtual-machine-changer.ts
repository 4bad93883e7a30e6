import { createHook } from 'node:async_hooks'
import { readFileSync } from 'node:fs'
import { pino } from 'pino'
import type { MachineSpec } from '../../../controller/compute/driver.js'
import type { Port } from '../../../controller/network/driver.js'
import { Fabric } from '../../../controller/network/local/fabric.js'
import { SHARES } from './machine-shares.js'
import { openVirtualDriver } from './virtual-driver.js'
import { isSeen, type Sight } from './virtual-machine-sights.js'

/**
 * A process that changes one virtual machine, and kills itself as soon as it sees what `killAt` names. Reads its orders
 * as JSON from standard input.
 */
export type ChangerOrders = { instance: string; directory: string; killAt: Sight } & (
  | { change: 'create'; spec: MachineSpec; heartbeatKey: string }
  | { change: 'plug' | 'unplug' | 'delete'; amphoraId: string; port: Port }
)

const orders = JSON.parse(readFileSync(0, 'utf8')) as ChangerOrders
const { instance, directory, killAt } = orders
killAtSight(killAt)
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

/** Looks before each answer of the outside world is dealt with: however fast a change is, it never outruns the look. */
function killAtSight(sight: Sight): void {
  const promises = new Set<number>()
  createHook({
    init: (asyncId, type) => type === 'PROMISE' && promises.add(asyncId),
    before(asyncId) {
      if (!promises.has(asyncId) && isSeen(sight)) process.kill(process.pid, 'SIGKILL')
    },
    destroy: asyncId => promises.delete(asyncId),
  }).enable()
}
