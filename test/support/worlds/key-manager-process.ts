import { readFileSync } from 'node:fs'
import { configurationSchema } from '../../../controller/config/schema.js'
import { connect } from '../../../controller/database/connection.js'
import { startServer } from '../../../controller/http/server.js'
import { createChecks, INSPECTION_MILLISECONDS } from '../../../controller/inspection/checks.js'
import type { ChannelCertificate } from '../../../controller/key-channel/keys.js'
import { createKeyManagerApi } from '../../../controller/key-manager/api.js'
import { createCaBackends } from '../../../controller/key-manager/certificate-authorities/backends.js'
import { startChannelServer } from '../../../controller/key-manager/channel/server.js'
import { createKeyring } from '../../../controller/key-manager/crypto/keyring.js'
import { createSimpleCrypto } from '../../../controller/key-manager/crypto/simple/backend.js'
import { startOrderWorker } from '../../../controller/key-manager/orders/worker/worker.js'
import { startRenewalWorker } from '../../../controller/key-manager/renewals/worker/worker.js'
import { createLog } from '../../../controller/log/log.js'
import { callerOf } from '../clients/callers.js'
import { CRASH_EXECUTORS } from '../faults/crash-executors.js'
import { nameStatements } from '../faults/named-statements.js'

/**
 * A process of the key manager that does one thing and is killed during it. Reads its orders as JSON from
 * standard input.
 */
export type ProcessOrders = {
  does: 'api' | 'bindings' | 'orders' | 'renewals'
  databaseUrl: string
  /** 32 bytes in hexadecimal. */
  masterKey: string
  /** Of the `key_manager` group. */
  settings: Readonly<Record<string, unknown>>
  /** Of the key channel, which `bindings` serves besides the API. */
  channel?: {
    certificate: ChannelCertificate
    /** 32 bytes in hexadecimal. */
    secret: string
    /** The bundled thread that inspects certificates. */
    inspector: string
  }
}

const { does, databaseUrl, masterKey, settings, channel } = JSON.parse(readFileSync(0, 'utf8')) as ProcessOrders
const log = createLog('test', 'warn')
const database = connect({ url: databaseUrl, applicationName: `test ${does}`, poolSize: 4 })
nameStatements(database)
const keys = [Buffer.from(masterKey, 'hex')]
const keyring = createKeyring(database, [createSimpleCrypto({ origin: 'the test', remedy: '', keys, reread: null })])
const config = configurationSchema.parse({ key_manager: settings }).key_manager

if (does === 'orders') {
  await startOrderWorker({
    ...{ database, databaseUrl, keyring, log },
    executors: CRASH_EXECUTORS,
    config: { concurrency: 4, sweep_interval: 60 },
  })
  console.log('ready')
} else if (does === 'renewals') {
  const service = { database, keyring, config }
  await startRenewalWorker({
    ...{ database, databaseUrl, keyring, service, log, backends: createCaBackends(service) },
    config: { concurrency: 4, sweep_interval: 60 },
  })
  console.log('ready')
} else {
  const checks =
    channel === undefined
      ? undefined
      : createChecks({ inspectionMilliseconds: INSPECTION_MILLISECONDS, program: channel.inspector })
  const app = createKeyManagerApi({
    ...{ database, keyring, config, log, ...(checks !== undefined && { checks }) },
    validate: async token => callerOf(token),
    identityUrl: 'http://identity.test/v3',
  })
  const server = await startServer(app, { host: '127.0.0.1', port: 0 })
  if (does === 'api' || channel === undefined || checks === undefined) {
    console.log(server.url)
  } else {
    const { listening } = startChannelServer({
      service: { database, keyring, config, checks, recordRefusal: async () => undefined },
      address: { host: '127.0.0.1', port: 0 },
      certificate: channel.certificate,
      secret: Buffer.from(channel.secret, 'hex'),
      log,
    })
    console.log(`${server.url} ${(await listening).port}`)
  }
}
