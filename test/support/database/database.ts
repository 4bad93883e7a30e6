import { createHash, randomBytes } from 'node:crypto'
import { chownSync, mkdirSync, statSync } from 'node:fs'
import { serviceSchemas } from '../../../controller/cli/wiring/services.js'
import { connect, type Database } from '../../../controller/database/connection.js'
import { migrate, prepareSchema, roleOf, type ServiceSchema } from '../../../controller/database/migrate.js'
import { type Cluster, startCluster } from '../../../controller/database/private-cluster.js'

const PASSWORD = 'only-for-tests'
/**
 * The sandbox's memory, which ends with it: a disk is slow with new files right after hundreds were deleted.
 * The WAL and the log stay on disk.
 */
const MEMORY = { tablespace: 'memory', directory: '/dev/shm/krater-test-databases' } as const

/**
 * The directory of the PostgreSQL that all test files of a run share. @throws outside of a run, because unit
 * tests need none
 */
export function testDirectory(): string {
  const { KRATER_TEST_DIRECTORY: directory } = process.env
  if (directory === undefined) throw new Error('This test needs PostgreSQL and a sandbox: run it with npm test.')
  return directory
}

async function startTestCluster(): Promise<Cluster> {
  return startCluster({
    directory: `${testDirectory()}/postgres`,
    durable: false,
    settings: { max_connections: '400' },
  })
}

export type TestDatabase = {
  /** One connection pool per service, with that service's role. */
  of: (schema: ServiceSchema['schema']) => Database
  urlOf: (schema: ServiceSchema['schema']) => string
  administratorUrl: string
  /** Closes the pools and drops the database. */
  drop: () => Promise<void>
}

/** A new database with all tables, cloned from a template in some 50 ms. */
export async function createTestDatabase(): Promise<TestDatabase> {
  const cluster = await startTestCluster()
  const administrator = connect({ url: cluster.administratorUrl, applicationName: 'test', poolSize: 1 })
  const template = await ensureTemplate(cluster, administrator)
  const name = `test_${randomBytes(6).toString('hex')}`
  await administrator.raw('CREATE DATABASE ?? TEMPLATE ??', [name, template])
  const pools = new Map<string, Database>()
  const urlOf = (schema: ServiceSchema['schema']) => cluster.urlOf(roleOf(schema), PASSWORD, name)
  return {
    urlOf,
    administratorUrl: cluster.administratorUrl.replace('/postgres?', `/${name}?`),
    of: schema => {
      const pool = pools.get(schema) ?? connect({ url: urlOf(schema), applicationName: `test ${schema}`, poolSize: 8 })
      pools.set(schema, pool)
      return pool
    },
    drop: async () => {
      await Promise.all([...pools.values()].map(pool => pool.destroy()))
      await administrator.raw('DROP DATABASE IF EXISTS ?? WITH (FORCE)', [name])
      await administrator.destroy()
    },
  }
}

async function ensureTemplate(cluster: Cluster, administrator: Database): Promise<string> {
  const source = serviceSchemas.flatMap(service =>
    service.migrations.map(migration => `${service.schema}/${migration.name}/${migration.up}`),
  )
  const name = `template_${createHash('sha256').update(source.join('\n')).digest('hex').slice(0, 16)}`
  await administrator.raw('SELECT pg_advisory_lock(hashtext(?))', ['krater test template'])
  try {
    const { rows } = await administrator.raw('SELECT 1 FROM pg_database WHERE datname = ?', [name])
    if (rows.length > 0) return name
    const building = `${name}_building`
    await administrator.raw('DROP DATABASE IF EXISTS ?? WITH (FORCE)', [building])
    await ensureMemory(administrator)
    await administrator.raw('CREATE DATABASE ?? TABLESPACE ??', [building, MEMORY.tablespace])
    const inTemplate = connect({
      url: cluster.administratorUrl.replace('/postgres?', `/${building}?`),
      applicationName: 'test',
      poolSize: 1,
    })
    for (const { schema } of serviceSchemas) await prepareSchema(inTemplate, schema, PASSWORD)
    for (const service of serviceSchemas) {
      const database = connect({
        url: cluster.urlOf(roleOf(service.schema), PASSWORD, building),
        applicationName: 'test',
        poolSize: 1,
      })
      await migrate(database, service)
      await database.destroy()
    }
    for (const { transferOwnership } of serviceSchemas) await transferOwnership?.(inTemplate)
    await inTemplate.destroy()
    await administrator.raw('ALTER DATABASE ?? RENAME TO ??', [building, name])
    return name
  } finally {
    await administrator.raw('SELECT pg_advisory_unlock(hashtext(?))', ['krater test template'])
  }
}

async function ensureMemory(administrator: Database): Promise<void> {
  const { rows } = await administrator.raw('SELECT 1 FROM pg_tablespace WHERE spcname = ?', [MEMORY.tablespace])
  if (rows.length > 0) return
  mkdirSync(MEMORY.directory, { recursive: true, mode: 0o700 })
  const { uid, gid } = statSync(`${testDirectory()}/postgres/socket`)
  chownSync(MEMORY.directory, uid, gid)
  await administrator.raw(`CREATE TABLESPACE ?? LOCATION '${MEMORY.directory}'`, [MEMORY.tablespace])
}
