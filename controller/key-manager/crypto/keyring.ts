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

/** A value as the database keeps it: ciphertext, and the project key that it is under. */
export type Sealed = { projectKeyId: string; ciphertext: Buffer }

/** What is needed to open a value: its ciphertext with the row of its project key. */
export type SealedWithKey = { ciphertext: Buffer; key: ProjectKey; backend: BackendName }

/**
 * Seals and opens what is secret, under the keys of projects.
 *
 * INVARIANT: a project key is deleted only when nothing refers to it (a foreign key sees to that), so what was sealed under a key that was
 * just replaced can still be opened. A new value is only stored under an active key: whoever stores one asks for it in the statement
 * (`project_key.active`), and seals again after `forgetActive` when the key was replaced meanwhile.
 */
export type Keyring = {
  /**
   * @param projectId '' for the service itself
   * @param backend the one that the project prefers, else the default one, when not given
   * @throws CryptoUnavailable
   */
  seal: (projectId: string, plaintext: Buffer, context: string, backend?: BackendName) => Promise<Sealed>
  /** @throws CryptoUnavailable, CannotOpen */
  open: (sealed: SealedWithKey, context: string) => Promise<Buffer>
  /** The project's active key is looked up anew the next time. */
  forgetActive: (projectId: string) => void
  backends: ReadonlyMap<BackendName, CryptoBackend>
  defaultBackend: BackendName
}

/** Active keys of projects remembered by one process. */
const MOST_REMEMBERED = 10_000

/**
 * @param backends the first is the default
 * @param preferredOf the back end that a project has chosen, if any; nothing is asked when not given
 */
export function createKeyring(
  database: Database,
  backends: readonly CryptoBackend[],
  preferredOf?: (projectId: string) => Promise<BackendName | null>,
): Keyring {
  const byName = new Map(backends.map(backend => [backend.name, backend]))
  const [first] = backends
  if (first === undefined) throw new Error('There is no crypto back end.')
  const active = new Map<string, Promise<ProjectKey>>()

  const backendOf = (name: BackendName): CryptoBackend => {
    const backend = byName.get(name)
    if (backend === undefined) throw new CryptoMisconfigured(`The crypto back end ${name} is not configured.`)
    return backend
  }
  const chosenFor = async (projectId: string): Promise<BackendName> =>
    (projectId === '' ? null : await preferredOf?.(projectId)) ?? first.name
  const activeKey = (projectId: string, backend: CryptoBackend): Promise<ProjectKey> => {
    const place = `${backend.name} ${projectId}`
    const known = active.get(place)
    if (known !== undefined) return known
    const found = ensureActiveKey(database, projectId, backend)
    const oldest = active.size >= MOST_REMEMBERED ? active.keys().next().value : undefined
    if (oldest !== undefined) active.delete(oldest)
    active.set(place, found)
    found.catch(() => active.delete(place))
    return found
  }
  const forgetActive = (projectId: string): void => {
    for (const name of byName.keys()) active.delete(`${name} ${projectId}`)
  }

  return {
    backends: byName,
    defaultBackend: first.name,
    seal: async (projectId, plaintext, context, name) => {
      const backend = backendOf(name ?? (await chosenFor(projectId)))
      const key = await activeKey(projectId, backend)
      const sealUnder = async (chosen: ProjectKey) => ({
        projectKeyId: chosen.id,
        ciphertext: await backend.encrypt(chosen, plaintext, context),
      })
      return sealUnder(key).catch(async error => {
        if (!(error instanceof CryptoUnavailable)) throw error
        // What is remembered may be under a master key that is gone since: the row tells.
        forgetActive(projectId)
        const now = await activeKey(projectId, backend)
        if (now.id === key.id && now.masterKeyId === key.masterKeyId) throw error
        return sealUnder(now)
      })
    },
    open: ({ ciphertext, key, backend }, context) => backendOf(backend).decrypt(key, ciphertext, context),
    forgetActive,
  }
}

/** Attempts at a master key that is just being replaced. */
const MOST_ATTEMPTS = 5

/**
 * The active key of a project, made when there is none; two that make one at once end with the same.
 * @throws CryptoUnavailable when the master key in force is not known here
 */
async function ensureActiveKey(database: Knex, projectId: string, backend: CryptoBackend): Promise<ProjectKey> {
  for (let attempt = 1; attempt <= MOST_ATTEMPTS; attempt++) {
    const { masterKeyId, ...standing } = await findActiveKey(database, projectId, backend.name)
    if (standing.key !== null) return standing.key
    if (masterKeyId === null) throw new CryptoMisconfigured(`${backend.name} has no master key in force.`)
    const made = await backend.createProjectKey(masterKeyId)
    await insertActiveKey(database, projectId, backend.name, made)
  }
  throw new Error(`The master key of ${backend.name} is replaced all the time.`)
}

async function findActiveKey(
  database: Knex,
  projectId: string,
  backend: BackendName,
): Promise<{ masterKeyId: string | null; key: ProjectKey | null }> {
  const row = await maybeOne(
    database,
    sql<{ inForce: string | null } & (ProjectKey | { id: null })>`
      SELECT m.id AS "inForce", k.id, k.wrapped, k.master_key_id AS "masterKeyId"
        FROM (SELECT ${backend}::text AS backend) b LEFT JOIN master_key m ON m.backend = b.backend AND m.active
        LEFT JOIN project_key k ON k.project_id = ${projectId} AND k.backend = b.backend AND k.active`,
  )
  if (row === undefined) return { masterKeyId: null, key: null }
  const { inForce, ...key } = row
  return { masterKeyId: inForce, key: key.id === null ? null : key }
}

/**
 * Stores a project's new active key, unless it has one or the master key was replaced. The lock makes whoever replaces the master key wait: no key
 * comes under a former one after its replacement.
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
    sql`WITH in_force AS (SELECT id FROM master_key WHERE id = ${masterKeyId} AND active FOR SHARE)
        INSERT INTO project_key (id, project_id, backend, wrapped, master_key_id)
        SELECT ${newId()}::uuid, ${projectId}, ${backend}, ${wrapped}::bytea, id FROM in_force
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
