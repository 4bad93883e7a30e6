import type { KeyObject } from 'node:crypto'
import { isIP } from 'node:net'
import { type RunningServer, startServer } from '../../../controller/http/server.js'
import { createKeyManagerApi } from '../../../controller/key-manager/api.js'
import { createCaBackends } from '../../../controller/key-manager/certificate-authorities/backends.js'
import { certificateOrderExecutor } from '../../../controller/key-manager/certificate-authorities/certificate-order.js'
import { createLog } from '../../../controller/log/log.js'
import { writeCertificateRequest } from '../../../x509/certificate-request.js'
import { parseDistinguishedName } from '../../../x509/encoding/distinguished-name.js'
import type { GeneralName } from '../../../x509/encoding/general-names.js'
import { AcmeClient, type AcmeReply, acmeKey } from '../clients/acme-client.js'
import { tokenOf } from '../clients/callers.js'
import type { Json } from '../clients/json-answers.js'
import { startTestKeyManager, type TestKeyManager } from '../clients/key-manager-api.js'
import { eventually } from '../eventually.js'
import { keyOf } from '../inputs/x509.js'
import { EXECUTORS, startTestOrderWorker } from './order-worker.js'

export type AcmeWorld = {
  manager: TestKeyManager
  /** A key for accounts of the project of a token. */
  bindingKey: (token?: string) => Promise<{ keyId: string; hmacKey: string }>
  /** A client with an account of that project. */
  client: (token?: string, alg?: Parameters<typeof acmeKey>[0]) => Promise<AcmeClient>
  /** Starts another API on the same database, as in another process behind one proxy. @returns its own URL */
  another: () => Promise<string>
  stop: () => Promise<void>
}

/** The key manager with its ACME server and a worker that issues certificates. Nothing validates challenges. */
export async function startAcmeServer(settings: Record<string, unknown> = {}): Promise<AcmeWorld> {
  const manager = await startTestKeyManager(settings)
  const backends = createCaBackends(manager)
  for (const backend of backends) await backend.prepare()
  const certificate = certificateOrderExecutor(manager, backends)
  const worker = await startTestOrderWorker(manager, { executors: { ...EXECUTORS, certificate } })
  const servers: RunningServer[] = []
  const bindingKey: AcmeWorld['bindingKey'] = async (token = tokenOf('member')) => {
    const made = await manager.ask('POST', '/v1/acme-accounts', { name: 'test' }, { token })
    if (made.status !== 201) throw new Error(`No key: ${made.status} ${made.text}`)
    return { keyId: String(made.body.key_id), hmacKey: String(made.body.hmac_key) }
  }
  return {
    manager,
    bindingKey,
    client: async (token, alg) => {
      const client = new AcmeClient(manager.url, acmeKey(alg))
      const reply = await client.register(await bindingKey(token))
      if (reply.status !== 201) throw new Error(`No account: ${reply.status} ${reply.text}`)
      return client
    },
    another: async () => {
      const app = createKeyManagerApi({
        ...manager,
        config: { ...manager.config, public_url: manager.url },
        validate: async () => null,
        identityUrl: '',
        log: createLog('test', 'silent'),
      })
      const server = await startServer(app, { host: '127.0.0.1', port: 0 })
      servers.push(server)
      return server.url
    },
    stop: async () => {
      for (const server of servers) await server.stop()
      await worker.stop()
      await manager.stop()
    },
  }
}

export const dns = (...names: string[]) => names.map(value => ({ type: 'dns', value }))

/** Orders identifiers and returns the order with its URL. */
export async function orderOf(
  client: AcmeClient,
  identifiers: readonly object[],
  more: object = {},
): Promise<{ url: string; body: Json; authorizations: string[] }> {
  const made = await client.send('new-order', { identifiers, ...more })
  if (made.status !== 201) throw new Error(`No order: ${made.status} ${made.text}`)
  const authorizations = (made.body.authorizations as string[]) ?? []
  return { url: String(made.headers.get('location')), body: made.body, authorizations }
}

/** Marks all challenges of a type as passed, in place of a validator. */
export async function pass({ manager }: AcmeWorld, authorizations: readonly string[], status = 'valid'): Promise<void> {
  for (const url of authorizations) {
    const [challenge] = await manager
      .database('acme_challenge')
      .where({ authorization_id: url.slice(-36) })
      .orderBy('position')
      .limit(1)
      .select('id')
    await manager.database('acme_challenge').where({ id: challenge.id }).update({ status, settled_at: new Date() })
  }
}

export type RequestOptions = { key?: KeyObject; subject?: string; uri?: string }

/** Base64url of a certificate request for names. */
export function requestFor(
  names: readonly string[],
  { key = keyOf('P-256'), subject, uri }: RequestOptions = {},
): string {
  const alternatives: GeneralName[] = names.map(value => ({ kind: isIP(value) === 0 ? 'dns' : 'ip', value }))
  if (uri !== undefined) alternatives.push({ kind: 'uri', value: uri })
  const dn = subject === undefined ? [] : parseDistinguishedName(subject)
  return writeCertificateRequest(dn, key, alternatives).toString('base64url')
}

/** Finalizes an order, and waits until it has ended. */
export async function finalize(client: AcmeClient, url: string, request: string): Promise<Json> {
  const answer = await client.send(`${url}/finalize`, { csr: request })
  if (answer.status !== 200) throw new Error(`Not finalized: ${answer.status} ${answer.text}`)
  return eventually(`order ${url} has ended`, async () => {
    const { body } = await client.send(url)
    return body.status !== 'processing' && body
  })
}

/** A certificate for names whose challenges have passed. */
export async function issue(
  world: AcmeWorld,
  client: AcmeClient,
  names: readonly string[],
  more: object = {},
): Promise<{ url: string; order: Json; pem: string }> {
  const identifiers = names.map(value => ({ type: isIP(value) === 0 ? 'dns' : 'ip', value }))
  const { url, authorizations } = await orderOf(client, identifiers, more)
  await pass(world, authorizations)
  const order = await finalize(client, url, requestFor(names))
  const { text } = await client.send(String(order.certificate))
  return { url, order, pem: text }
}

/** Status and type of a refusal, such as `400 malformed`. */
export const outcomeOf = ({ status, body }: AcmeReply): string =>
  `${status} ${String(body.type).replace('urn:ietf:params:acme:error:', '')}`
