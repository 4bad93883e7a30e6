import { join } from 'node:path'
import { type Finding, fault, note, ok } from '../../../checks/finding.js'
import type { Database } from '../../../database/connection.js'
import { many, one } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'
import { faultOf } from '../../explain.js'
import { runningPostmaster } from '../../host/postgres.js'
import { usesPrivateCluster } from '../../state-directory/database-urls.js'
import type { RunRecord } from '../../state-directory/run-record.js'
import { type Instance, openDatabase } from '../../wiring/instance.js'
import { serviceSchemas } from '../../wiring/services.js'

const MAX_CLOCK_SKEW_SECONDS = 2

/** @returns one finding when the private PostgreSQL is not running: a note if nothing of Krater runs */
export async function checkDatabase(instance: Instance, running: readonly RunRecord[]): Promise<Finding[]> {
  const { config, directory } = instance
  if (usesPrivateCluster(config, directory) && runningPostmaster(directory) === null) {
    if (running.length === 0) return [note('database', 'PostgreSQL is not running: `krater up` starts it')]
    const log = join(directory, 'postgres/data/server.log')
    return [
      fault(
        'database',
        'PostgreSQL is not running',
        `krater down && krater up --detach; if it stops again: tail ${log}`,
      ),
    ]
  }
  const findings: Finding[] = []
  for (const { schema, migrations } of serviceSchemas) {
    const database = openDatabase(instance, schema, 'doctor')
    try {
      findings.push(await checkTables(database, { directory, schema }, new Set(migrations.map(({ name }) => name))))
      if (schema === 'identity') findings.push(await checkClock(database))
    } finally {
      await database.destroy()
    }
  }
  return findings
}

async function checkTables(
  database: Database,
  { directory, schema }: { directory: string; schema: string },
  known: ReadonlySet<string>,
): Promise<Finding> {
  const about = `database ${schema}`
  try {
    const rows = await many(database, sql<{ name: string }>`SELECT name FROM migration`)
    const applied = rows.map(({ name }) => name)
    const newer = applied.filter(name => !known.has(name))
    if (newer.length > 0) {
      return fault(about, `written by a newer Krater (${newer.join(', ')})`, 'start that version, or restore a backup')
    }
    const pending = known.size - applied.length
    if (pending > 0) return fault(about, `${pending} migrations are missing`, 'run `krater db migrate`')
    return ok(about, `reachable, ${applied.length} migrations applied`)
  } catch (error) {
    const found = faultOf(error, directory)
    if (found === null) throw error
    return fault(about, found.what, found.remedy)
  }
}

async function checkClock(database: Database): Promise<Finding> {
  const before = Date.now()
  const { now } = await one(database, sql<{ now: number }>`SELECT extract(epoch FROM clock_timestamp())::float8 AS now`)
  const skew = Math.abs((before + Date.now()) / 2 / 1000 - now)
  const text = `differs from the database's clock by ${skew.toFixed(2)} s`
  return skew <= MAX_CLOCK_SKEW_SECONDS ? ok('clock', text) : fault('clock', text, 'synchronise both machines with NTP')
}
