import { readFileSync } from 'node:fs'
import { pino } from 'pino'
import { connect } from '../../../controller/database/connection.js'
import { Fabric } from '../../../controller/network/local/fabric.js'
import { startNetworkWorker } from '../../../controller/network/local/worker/worker.js'

/** A process with a network worker, which is killed during its work. Reads its orders as JSON from standard input. */
export type NetworkWorkerOrders = { instance: string; databaseUrl: string }

const { instance, databaseUrl } = JSON.parse(readFileSync(0, 'utf8')) as NetworkWorkerOrders
await startNetworkWorker({
  database: connect({ url: databaseUrl, applicationName: 'test network worker' }),
  databaseUrl,
  fabric: new Fabric({ instance }),
  physicalNetworks: {},
  keepHost: async () => undefined,
  hasSpanningRouters: async () => true,
  log: pino({ level: 'silent' }),
})
