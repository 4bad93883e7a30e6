import { randomBytes, randomUUID } from 'node:crypto'
import t, { type Test } from 'tap'
import type { Database } from '../../controller/database/connection.js'
import { createKeyring } from '../../controller/key-manager/crypto/keyring.js'
import { requireMasterKeys } from '../../controller/key-manager/crypto/master-key.js'
import { createSimpleCrypto } from '../../controller/key-manager/crypto/simple/backend.js'
import { findPayload, payloadContext } from '../../controller/key-manager/secrets/secret.js'
import { tokenOf } from '../support/clients/callers.js'
import { startTestKeyManager } from '../support/clients/key-manager-api.js'
import { createCrashScene, differences, killsAt, SAME } from '../support/faults/crash-scene.js'

/** Killing the API at any statement of a change to a secret or a container keeps what was acknowledged and leaves nothing half-written. */

const masterKey = randomBytes(32)
const manager = await startTestKeyManager({}, undefined, async (database: Database) => {
  const backend = createSimpleCrypto({ origin: 'the test', remedy: '', keys: [masterKey], reread: null })
  await requireMasterKeys(database, backend)
  return createKeyring(database, [backend])
})
t.teardown(manager.stop)
const { database, keyring } = manager
const { start, killAt } = await createCrashScene(t, manager.databaseUrl, masterKey)

const PAYLOAD = 'as it was sent'

type Request = { method: string; path: string; body?: unknown; raw?: string }

/** One change, and how to tell that it has happened. */
type Change = {
  name: string
  /** Its statements in a newly started process; the last one makes it durable. */
  steps: readonly string[]
  /** Creates what the change needs. @returns ids of secrets */
  prepare: (project: string) => Promise<readonly string[]>
  /** @param base URL of the API that gets the request */
  request: (secrets: readonly string[], base: string) => Request
  status: number
  /** The status when the same request is repeated after the change. */
  again: number
  /** Counts what the change affects: `before` it, and `after`. */
  count: (project: string) => Promise<number>
  before: number
  after: number
}

const json = (path: string, body: unknown, method = 'POST'): Request => ({ method, path, body })
const whole = { payload: PAYLOAD, payload_content_type: 'text/plain' }

const storeFor = (project: string, body: unknown = whole) => manager.store(body, tokenOf('member', project))
const nothing = async () => []
const live = (table: 'secret' | 'container') => async (project: string) =>
  (await database(table).where({ project_id: project, deleted_at: null })).length

const references = (secrets: readonly string[], base: string) =>
  secrets.map((id, at) => ({ name: `part ${at}`, secret_ref: `${base}/v1/secrets/${id}` }))

const CHANGES: readonly Change[] = [
  {
    name: 'a secret with its payload',
    steps: ['findActiveKey', 'insertActiveKey', 'insertSecret'],
    prepare: nothing,
    request: () => json('/v1/secrets', whole),
    ...{ status: 201, again: 201, count: live('secret'), before: 0, after: 1 },
  },
  {
    name: 'the last secret that the quota allows',
    steps: ['findActiveKey', 'insertSecret'],
    prepare: async project => {
      await database('project_quota').insert({ project_id: project, secrets: 2 })
      return [await storeFor(project)]
    },
    request: () => json('/v1/secrets', whole),
    ...{ status: 201, again: 403, count: live('secret'), before: 1, after: 2 },
  },
  {
    name: 'the payload of a secret that had none',
    steps: ['findSecret', 'findActiveKey', 'insertActiveKey', 'updatePayload'],
    prepare: async project => [await storeFor(project, { name: 'empty' })],
    request: ([id]) => ({ method: 'PUT', path: `/v1/secrets/${id}`, raw: PAYLOAD }),
    ...{ status: 204, again: 409, before: 0, after: 1 },
    count: async project =>
      (await database('secret').where({ project_id: project }).whereNotNull('content_type')).length,
  },
  {
    name: 'the deletion of a secret',
    steps: ['begin', 'findSecret', 'requireUnbound', 'secrets/delete', 'commit'],
    prepare: async project => [await storeFor(project)],
    request: ([id]) => ({ method: 'DELETE', path: `/v1/secrets/${id}` }),
    ...{ status: 204, again: 404, count: live('secret'), before: 1, after: 0 },
  },
  {
    name: 'a container',
    steps: ['requireOwnSecrets', 'storeContainer'],
    prepare: async project => [await storeFor(project), await storeFor(project)],
    request: (secrets, base) =>
      json('/v1/containers', { type: 'generic', name: 'c', secret_refs: references(secrets, base) }),
    ...{ status: 201, again: 201, count: live('container'), before: 0, after: 1 },
  },
  {
    name: 'the ACL of a secret',
    steps: ['findSecret', 'changeAcl'],
    prepare: async project => [await storeFor(project)],
    request: ([id]) => json(`/v1/secrets/${id}/acl`, { read: { users: ['a', 'b'] } }, 'PUT'),
    ...{ status: 200, again: 200, before: 0, after: 2 },
    count: async project =>
      (await database('secret').where({ project_id: project })).flatMap(({ acl_users }) => acl_users).length,
  },
]

async function send(base: string, project: string, { method, path, body, raw }: Request): Promise<number | null> {
  return fetch(base + path, {
    method,
    headers: {
      'X-Auth-Token': tokenOf('member', project),
      'Content-Type': raw === undefined ? 'application/json' : 'text/plain',
    },
    ...(raw !== undefined || body !== undefined ? { body: raw ?? JSON.stringify(body) } : {}),
    signal: AbortSignal.timeout(30_000),
  }).then(
    async reply => {
      await reply.arrayBuffer()
      return reply.status
    },
    () => null,
  )
}

const ACTIONS = ['secret.create', 'secret.payload.store', 'secret.delete', 'secret.acl.change'] as const

/** The project's objects are complete, and its audit records match them. */
async function requireWhole(t: Test, project: string): Promise<void> {
  const secrets = await database('secret').where({ project_id: project })
  const records = await database('audit_record').where({ project_id: project, outcome: 'success' })
  const recorded = (action: (typeof ACTIONS)[number]) =>
    records.filter(record => record.action === action).map(record => record.target_id)
  const idsOf = (rows: typeof secrets) => rows.map(({ id }) => id)
  t.same(recorded('secret.create').sort(), idsOf(secrets).sort(), 'one record per secret')
  const ended = secrets.filter(secret => secret.deleted_at !== null)
  t.same(recorded('secret.delete').sort(), idsOf(ended).sort(), 'one record per deletion')
  const late = secrets.filter(({ name, content_type }) => name === 'empty' && content_type !== null)
  t.same(recorded('secret.payload.store'), idsOf(late), 'one record per payload stored later')
  const opened = secrets.filter(secret => secret.acl_created_at !== null)
  t.same([...new Set(recorded('secret.acl.change'))], idsOf(opened), 'a record per ACL')
  for (const { id, content_type, ciphertext, project_key_id, deleted_at } of secrets) {
    const has = content_type !== null && deleted_at === null
    t.same([ciphertext !== null, project_key_id !== null], [has, has], 'ciphertext and key exist together')
    if (!has) continue
    const { sealed } = await findPayload(database, id)
    t.equal(sealed && String(await keyring.open(sealed, payloadContext(id))), PAYLOAD)
  }
  const containers = await database('container').where({ project_id: project })
  for (const { id } of containers) {
    const held = await database('container_secret').where({ container_id: id })
    t.equal(held.length, 2, 'the container keeps its references')
  }
  const keys = await database('project_key').where({ project_id: project })
  t.ok(keys.length <= 1, 'at most one key')
}

for (const change of CHANGES) {
  t.test(`${change.name}: killing the API at any statement leaves it done or not done`, async t => {
    let next = start('api')
    for (const kill of [...killsAt(change.steps), null]) {
      const api = await next
      if (kill !== null) next = start('api')
      const project = randomUUID()
      const ids = await change.prepare(project)
      let status: number | null = null
      const isOver = async () => status !== null
      const killing = killAt(api, kill, { hasBegun: async () => true, isOver })
      const asking = send(api.firstLine, project, change.request(ids, api.firstLine)).then(answer => {
        status = answer
      })
      const seen = await killing
      await asking
      const what = kill === null ? 'not killed' : `${kill.step} ${kill.at}`
      const stands = kill === null || (kill.step === change.steps.at(-1) && kill.at === 'answered')
      t.equal(status, kill === null ? change.status : null, `${what}: the answer`)
      t.equal(await change.count(project), stands ? change.after : change.before, `${what}: done or not done`)
      await requireWhole(t, project)
      if (kill === null) t.same(differences(seen, change.steps), SAME, 'the request takes exactly these steps')
      const again = await send(manager.url, project, change.request(ids, manager.url))
      t.equal(again, stands ? change.again : change.status, `${what}: the repeated request`)
      await requireWhole(t, project)
      if (change.status !== change.again) t.equal(await change.count(project), change.after)
    }
  })
}
