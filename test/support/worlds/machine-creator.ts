import { readFileSync } from 'node:fs'
import { pino } from 'pino'
import type { MachineSpec } from '../../../controller/compute/driver.js'
import { NamespaceDriver } from '../../../controller/compute/namespace/driver.js'
import { Fabric } from '../../../controller/network/local/fabric.js'
import { SHARES } from './machine-shares.js'

/** A process that creates one machine and is killed during it. Reads its orders as JSON from standard input. */
export type CreatorOrders = {
  instance: string
  directory: string
  agentBundle: string
  spec: MachineSpec
  heartbeatKey: string
}

const { instance, directory, agentBundle, spec, heartbeatKey } = JSON.parse(readFileSync(0, 'utf8')) as CreatorOrders
const driver = new NamespaceDriver({
  instance,
  directory,
  fabric: new Fabric({ instance }),
  networkMtu: async () => 1500,
  portFilters: async () => null,
  agentBundle,
  ...SHARES,
  log: pino({ level: 'silent' }),
})
console.log('begins')
await driver.create({ ...spec, identity: { ...spec.identity, heartbeatKey: Buffer.from(heartbeatKey, 'hex') } })
console.log('made')
