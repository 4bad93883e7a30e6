import { randomBytes } from 'node:crypto'
import type Koa from 'koa'
import { configurationSchema } from '../../../controller/config/schema.js'
import type { Database } from '../../../controller/database/connection.js'
import { startServer } from '../../../controller/http/server.js'
import type { TokenValidator } from '../../../controller/identity/caller.js'
import type { Checks } from '../../../controller/inspection/checks.js'
import { createKeyManagerApi } from '../../../controller/key-manager/api.js'
import { createKeyring, type Keyring } from '../../../controller/key-manager/crypto/keyring.js'
import { requireMasterKeys } from '../../../controller/key-manager/crypto/master-key.js'
import { createSimpleCrypto } from '../../../controller/key-manager/crypto/simple/backend.js'
import type { KeyManagerSettings } from '../../../controller/key-manager/options.js'
import { createLog } from '../../../controller/log/log.js'
import { CANARY } from '../canary.js'
import { createTestDatabase } from '../database/database.js'
import { callerOf, tokenOf } from './callers.js'
import type { Json, Reply } from './json-answers.js'

export type AskOptions = {
  /** Null sends no token. Default: a member of OWN. See tokenOf. */
  token?: string | null
  headers?: Record<string, string>
  /** The body as it is sent, instead of JSON. */
  raw?: string | Buffer
}

export type KeyManagerReply = Reply & { bytes: Buffer }

export type TestKeyManager = {
  app: Koa
  url: string
  database: Database
  databaseUrl: string
  /** For a role with every right on that database. */
  administratorUrl: string
  keyring: Keyring
  config: KeyManagerSettings
  ask: (method: string, path: string, body?: unknown, options?: AskOptions) => Promise<KeyManagerReply>
  /** Stores a secret. @returns its id */
  store: (body?: unknown, token?: string) => Promise<string>
  /** Runs a function. @returns the SQL that the API sent during it */
  statementsOf: (body: () => Promise<unknown>) => Promise<string[]>
  stop: () => Promise<void>
}

async function openTestKeyring(database: Database): Promise<Keyring> {
  const backend = createSimpleCrypto({ origin: 'the test', remedy: '', keys: [randomBytes(32)], reread: null })
  await requireMasterKeys(database, backend)
  return createKeyring(database, [backend])
}

/**
 * The key manager's API over HTTP on a new database.
 * @param settings of the `key_manager` group of the configuration
 * @param validate instead of tokens that name their caller
 * @param openKeyring instead of one back end with a new master key
 * @param checks of certificates; by default they fail, for want of the thread's bundled program
 */
export async function startTestKeyManager(
  settings: Record<string, unknown> = {},
  validate: TokenValidator = async token => callerOf(token),
  openKeyring = openTestKeyring,
  checks?: Checks,
): Promise<TestKeyManager> {
  const testDatabase = await createTestDatabase()
  const database = testDatabase.of('key_manager')
  const keyring = await openKeyring(database)
  const config = configurationSchema.parse({ key_manager: settings }).key_manager
  const app = createKeyManagerApi({
    database,
    keyring,
    config,
    validate,
    identityUrl: 'http://identity.test/v3',
    ...(checks !== undefined && { checks }),
    log: createLog('test', 'silent'),
  })
  const server = await startServer(app, { host: '127.0.0.1', port: 0 })

  const ask: TestKeyManager['ask'] = async (
    method,
    path,
    body,
    { token = tokenOf('member'), headers = {}, raw } = {},
  ) => {
    const sent = raw ?? (body === undefined ? undefined : JSON.stringify(body))
    const answer = await fetch(server.url + path, {
      method,
      headers: {
        ...(token === null ? {} : { 'X-Auth-Token': token }),
        ...(raw === undefined && body !== undefined ? { 'Content-Type': 'application/json' } : {}),
        ...headers,
      },
      ...(sent === undefined ? {} : { body: sent }),
      signal: AbortSignal.timeout(20_000),
    })
    const bytes = Buffer.from(await answer.arrayBuffer())
    const text = bytes.toString()
    const isJson = (answer.headers.get('content-type') ?? '').includes('json')
    const parsed: Json = isJson && text !== '' ? (JSON.parse(text) as Json) : {}
    return { status: answer.status, headers: answer.headers, text, bytes, body: parsed }
  }

  return {
    app,
    url: server.url,
    database,
    databaseUrl: testDatabase.urlOf('key_manager'),
    administratorUrl: testDatabase.administratorUrl,
    keyring,
    config,
    ask,
    store: async (body = { payload: CANARY, payload_content_type: 'text/plain' }, token = tokenOf('member')) => {
      const reply = await ask('POST', '/v1/secrets', body, { token })
      if (reply.status !== 201) throw new Error(`The secret was not stored: ${reply.status} ${reply.text}`)
      return String(reply.body.secret_ref).slice(-36)
    },
    statementsOf: async body => {
      const statements: string[] = []
      const note = ({ sql }: { sql: string }) => statements.push(sql)
      database.on('query', note)
      await body()
      database.removeListener('query', note)
      return statements
    },
    stop: async () => {
      await server.stop()
      await Promise.all([...keyring.backends.values()].map(backend => backend.stop()))
      await testDatabase.drop()
    },
  }
}
