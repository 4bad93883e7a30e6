import { existsSync } from 'node:fs'
import { dirname } from 'node:path'
import type { ServiceSchema } from '../../database/migrate.js'
import { one } from '../../database/query.js'
import { type Fragment, sql } from '../../database/sql.js'
import { storedNameOf } from '../../key-manager/crypto/backends.js'
import { OperatorError } from '../operator-error.js'
import { type KeyFiles, keyFiles } from '../state-directory/keys.js'
import { computeDriverOf } from '../wiring/drivers.js'
import { type Instance, openDatabase } from '../wiring/instance.js'

type Dependent = {
  keys: readonly (keyof KeyFiles)[]
  schema: ServiceSchema['schema']
  /** Whether the database holds what depends on the keys. */
  isUsed: Fragment<{ used: boolean }>
  /** What happens with another key, after "because". */
  because: string
}

const AMPHORAE: Dependent = {
  keys: ['amphoraMaster', 'controllerSsh', 'operatorSsh'],
  schema: 'load_balancer',
  isUsed: sql`SELECT EXISTS (SELECT FROM amphora) AS used`,
  because: 'no amphora would answer a controller with another one',
}

const DEPENDENTS: readonly Dependent[] = [
  {
    keys: ['keyManagerMaster'],
    schema: 'key_manager',
    isUsed: sql`SELECT EXISTS (SELECT FROM master_key WHERE backend = ${storedNameOf('simple')}) AS used`,
    because: 'stored secrets cannot be decrypted with another one',
  },
  {
    keys: ['keyManagerAudit'],
    schema: 'key_manager',
    isUsed: sql`SELECT EXISTS (SELECT FROM key_manager_audit.audit_record WHERE hash IS NOT NULL) AS used`,
    because: 'the audit log cannot be verified with another one',
  },
  {
    keys: ['identityCredentials'],
    schema: 'identity',
    isUsed: sql`SELECT EXISTS (SELECT FROM credential) AS used`,
    because: 'stored credentials cannot be decrypted with another one',
  },
]

/**
 * Refuses to start without a key that the database depends on: a new one in its place would look valid and be wrong.
 * @throws OperatorError that names the missing file
 */
export async function requireKeptKeys(instance: Instance): Promise<void> {
  const files = keyFiles(instance.config, instance.directory)
  for (const { keys, schema, isUsed, because } of [...DEPENDENTS, ...(runsMachines(instance) ? [AMPHORAE] : [])]) {
    const missing = keys.map(key => files[key]).find(path => path !== null && !existsSync(path))
    if (missing === undefined || missing === null || !(await query(instance, schema, isUsed))) continue
    throw new OperatorError(
      `The key ${missing} is missing, and Krater generates no other because ${because}. Copy it back from a backup of ${dirname(missing)} or from another machine of this installation, with mode 600.`,
    )
  }
}

const runsMachines = (instance: Instance): boolean => computeDriverOf(instance).runsMachines

async function query(instance: Instance, schema: ServiceSchema['schema'], isUsed: Fragment<{ used: boolean }>) {
  const database = openDatabase(instance, schema, 'first start')
  try {
    return (await one(database, isUsed)).used
  } finally {
    await database.destroy()
  }
}
