import type { Knex } from 'knex'
import type { Database } from '../../database/connection.js'
import { newId } from '../ids.js'
import type { BackendName, CryptoBackend, ProjectKey } from './backend.js'

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
  /** @param projectId '' for the service itself @param backend the default one when not given */
  seal: (projectId: string, plaintext: Buffer, context: string, backend?: BackendName) => Promise<Sealed>
  open: (sealed: SealedWithKey, context: string) => Promise<Buffer>
  /** The project's active key is looked up anew the next time. */
  forgetActive: (projectId: string) => void
  backends: ReadonlyMap<BackendName, CryptoBackend>
  defaultBackend: BackendName
}

/** Active keys of projects remembered by one process. */
const MOST_REMEMBERED = 10_000

/** @param backends the first is the default */
export function createKeyring(database: Database, backends: readonly CryptoBackend[]): Keyring {
  const byName = new Map(backends.map(backend => [backend.name, backend]))
  const [first] = backends
  if (first === undefined) throw new Error('There is no crypto back end.')
  const active = new Map<string, Promise<ProjectKey>>()

  const backendOf = (name: BackendName): CryptoBackend => {
    const backend = byName.get(name)
    if (backend === undefined) throw new Error(`The crypto back end ${name} is not configured.`)
    return backend
  }
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

  return {
    backends: byName,
    defaultBackend: first.name,
    seal: async (projectId, plaintext, context, name = first.name) => {
      const backend = backendOf(name)
      const key = await activeKey(projectId, backend)
      return { projectKeyId: key.id, ciphertext: await backend.encrypt(key, plaintext, context) }
    },
    open: ({ ciphertext, key, backend }, context) => backendOf(backend).decrypt(key, ciphertext, context),
    forgetActive: projectId => {
      for (const name of byName.keys()) active.delete(`${name} ${projectId}`)
    },
  }
}

/** The active key of a project, made when there is none; two that make one at once end with the same. */
async function ensureActiveKey(database: Knex, projectId: string, backend: CryptoBackend): Promise<ProjectKey> {
  const find = async (): Promise<ProjectKey | undefined> => {
    const { rows } = await database.raw(
      `SELECT id, wrapped, master_key_id AS "masterKeyId" FROM project_key WHERE project_id = ? AND backend = ? AND active`,
      [projectId, backend.name],
    )
    return (rows as ProjectKey[])[0]
  }
  const standing = await find()
  if (standing !== undefined) return standing
  const made = await backend.createProjectKey()
  await database.raw(
    `INSERT INTO project_key (id, project_id, backend, wrapped, master_key_id) VALUES (?, ?, ?, ?, ?)
     ON CONFLICT (project_id, backend) WHERE active DO NOTHING`,
    [newId(), projectId, backend.name, made.wrapped, made.masterKeyId],
  )
  const key = await find()
  if (key === undefined) throw new Error('A project key vanished while it was made.')
  return key
}

/** Columns of a sealed value's project key (alias k), for `sealedFrom`. */
export const KEY_COLUMNS = `k.id AS "keyId", k.wrapped, k.master_key_id AS "masterKeyId", k.backend`

export type KeyRow = { keyId: string; wrapped: Buffer; masterKeyId: string; backend: BackendName }

export function sealedFrom(ciphertext: Buffer, { keyId, wrapped, masterKeyId, backend }: KeyRow): SealedWithKey {
  return { ciphertext, key: { id: keyId, wrapped, masterKeyId }, backend }
}
