import type { Knex } from 'knex'
import type { Database } from '../../database/connection.js'
import { execute, maybeOne } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import { newId } from '../ids.js'
import {
  type BackendName,
  type CryptoBackend,
  CryptoMisconfigured,
  CryptoUnavailable,
  type ProjectKey,
} from './backend.js'

/** A value as the database stores it: ciphertext and the project key that encrypts it. */
export type Sealed = { projectKeyId: string; ciphertext: Buffer }

/** A stored value with the project key that decrypts it. */
export type SealedWithKey = { ciphertext: Buffer; key: ProjectKey; backend: BackendName }

/**
 * Seals (encrypts) and opens (decrypts) secrets with project keys.
 *
 * INVARIANT: a foreign key prevents the deletion of a project key that a value refers to, so a value sealed
 * with a key that was just replaced still opens. New values are stored only under an active key: the storing
 * statement checks `project_key.active`, and its caller seals again after `forgetActive` when the key was
 * replaced meanwhile.
 */
export type Keyring = {
  /**
   * @param projectId '' for the service itself
   * @param backend by default the one the project prefers, else the first configured one
   * @throws CryptoUnavailable
   */
  seal: (projectId: string, plaintext: Buffer, context: string, backend?: BackendName) => Promise<Sealed>
  /** @throws CryptoUnavailable, CannotOpen */
  open: (sealed: SealedWithKey, context: string) => Promise<Buffer>
  /** Makes the next `seal` look up the project's active key again. */
  forgetActive: (projectId: string) => void
  backends: ReadonlyMap<BackendName, CryptoBackend>
  defaultBackend: BackendName
}

/** Active project keys cached per process. */
const MAX_CACHED_KEYS = 10_000

/**
 * @param backends the first is the default
 * @param preferredBackend looks up the back end a project has chosen; without it every project uses the default
 */
export function createKeyring(
  database: Database,
  backends: readonly CryptoBackend[],
  preferredBackend?: (projectId: string) => Promise<BackendName | null>,
): Keyring {
  const byName = new Map(backends.map(backend => [backend.name, backend]))
  const [first] = backends
  if (first === undefined) throw new Error('There is no crypto back end.')
  const active = new Map<string, Promise<ProjectKey>>()

  const requireBackend = (name: BackendName): CryptoBackend => {
    const backend = byName.get(name)
    if (backend === undefined) throw new CryptoMisconfigured(`The crypto back end ${name} is not configured.`)
    return backend
  }
  const backendNameFor = async (projectId: string): Promise<BackendName> =>
    (projectId === '' ? null : await preferredBackend?.(projectId)) ?? first.name
  const activeKey = (projectId: string, backend: CryptoBackend): Promise<ProjectKey> => {
    const cacheKey = `${backend.name} ${projectId}`
    const cached = active.get(cacheKey)
    if (cached !== undefined) return cached
    const found = ensureActiveKey(database, projectId, backend)
    const oldest = active.size >= MAX_CACHED_KEYS ? active.keys().next().value : undefined
    if (oldest !== undefined) active.delete(oldest)
    active.set(cacheKey, found)
    found.catch(() => active.delete(cacheKey))
    return found
  }
  const forgetActive = (projectId: string): void => {
    for (const name of byName.keys()) active.delete(`${name} ${projectId}`)
  }

  return {
    backends: byName,
    defaultBackend: first.name,
    seal: async (projectId, plaintext, context, name) => {
      const backend = requireBackend(name ?? (await backendNameFor(projectId)))
      const key = await activeKey(projectId, backend)
      const sealUnder = async (chosen: ProjectKey) => ({
        projectKeyId: chosen.id,
        ciphertext: await backend.encrypt(chosen, plaintext, context),
      })
      return sealUnder(key).catch(async error => {
        if (!(error instanceof CryptoUnavailable)) throw error
        // The cached key may be wrapped by a master key that was since removed: read its row again.
        forgetActive(projectId)
        const current = await activeKey(projectId, backend)
        if (current.id === key.id && current.masterKeyId === key.masterKeyId) throw error
        return sealUnder(current)
      })
    },
    open: ({ ciphertext, key, backend }, context) => requireBackend(backend).decrypt(key, ciphertext, context),
    forgetActive,
  }
}

/** Each failed attempt means that the master key was replaced meanwhile. */
const MAX_ATTEMPTS = 5

/**
 * The active key of a project; creates it if there is none. Concurrent callers get the same key.
 * @throws CryptoUnavailable when the back end does not know the active master key
 */
async function ensureActiveKey(database: Knex, projectId: string, backend: CryptoBackend): Promise<ProjectKey> {
  for (let attempt = 1; attempt <= MAX_ATTEMPTS; attempt++) {
    const { masterKeyId, ...standing } = await findActiveKey(database, projectId, backend.name)
    if (standing.key !== null) return standing.key
    if (masterKeyId === null) throw new CryptoMisconfigured(`${backend.name} has no active master key.`)
    const made = await backend.createProjectKey(masterKeyId)
    await insertActiveKey(database, projectId, backend.name, made)
  }
  throw new Error(`The master key of ${backend.name} was replaced during each of ${MAX_ATTEMPTS} attempts.`)
}

async function findActiveKey(
  database: Knex,
  projectId: string,
  backend: BackendName,
): Promise<{ masterKeyId: string | null; key: ProjectKey | null }> {
  const row = await maybeOne(
    database,
    sql<{ activeMasterKeyId: string | null } & (ProjectKey | { id: null })>`
      SELECT m.id AS "activeMasterKeyId", k.id, k.wrapped, k.master_key_id AS "masterKeyId"
        FROM (SELECT ${backend}::text AS backend) b LEFT JOIN master_key m ON m.backend = b.backend AND m.active
        LEFT JOIN project_key k ON k.project_id = ${projectId} AND k.backend = b.backend AND k.active`,
  )
  if (row === undefined) return { masterKeyId: null, key: null }
  const { activeMasterKeyId, ...key } = row
  return { masterKeyId: activeMasterKeyId, key: key.id === null ? null : key }
}

/**
 * Stores a project's new active key, unless the project has one or the master key was replaced. The lock
 * makes a concurrent rotation of the master key wait, so no key is wrapped by a former master key after its
 * replacement.
 * @returns whether it was stored
 */
export async function insertActiveKey(
  database: Knex,
  projectId: string,
  backend: BackendName,
  { wrapped, masterKeyId }: { wrapped: Buffer; masterKeyId: string },
): Promise<boolean> {
  const stored = await execute(
    database,
    sql`WITH active_master_key AS (SELECT id FROM master_key WHERE id = ${masterKeyId} AND active FOR SHARE)
        INSERT INTO project_key (id, project_id, backend, wrapped, master_key_id)
        SELECT ${newId()}::uuid, ${projectId}, ${backend}, ${wrapped}::bytea, id FROM active_master_key
        ON CONFLICT (project_id, backend) WHERE active DO NOTHING`,
  )
  return stored === 1
}

/** Columns of a sealed value's project key (alias k), for `sealedFrom`. */
export const KEY_COLUMNS = sql`k.id AS "keyId", k.wrapped, k.master_key_id AS "masterKeyId", k.backend`

export type KeyRow = { keyId: string; wrapped: Buffer; masterKeyId: string; backend: BackendName }

export function sealedFrom(ciphertext: Buffer, { keyId, wrapped, masterKeyId, backend }: KeyRow): SealedWithKey {
  return { ciphertext, key: { id: keyId, wrapped, masterKeyId }, backend }
}
