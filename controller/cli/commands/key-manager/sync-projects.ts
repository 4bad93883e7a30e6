import { Option } from 'commander'
import type { Database } from '../../../database/connection.js'
import { many } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'
import { externalIdentity } from '../../../identity/external/external-identity.js'
import { IdentityUnavailable } from '../../../identity/external/identity-unavailable.js'
import { findExistingProjects } from '../../../identity/external/projects.js'
import { eraseProject } from '../../../key-manager/erase-project.js'
import { type HeldProject, listHeldProjects } from '../../../key-manager/held-projects.js'
import type { Command } from '../../command.js'
import { OperatorError } from '../../operator-error.js'
import { print, table } from '../../terminal.js'
import { type Instance, openDatabase, openInstance } from '../../wiring/instance.js'

export const command: Command = {
  options: [new Option('--yes', 'erase their data'), new Option('--force', 'erase even if most projects are missing')],
  run: (directory, options: SyncOptions) => syncProjects(directory, options),
}

export type SyncOptions = {
  /** Erases the data instead of only listing it. */
  yes?: boolean
  /** Erases even if most projects are missing. */
  force?: boolean
}

/**
 * Lists projects that the key manager holds data for but the identity service no longer has, and erases that data.
 * @param report prints a line for the user
 * @throws OperatorError when the identity service does not answer, or lacks so many projects that it is probably the
 *   wrong one
 */
export async function syncProjects(
  directory: string,
  { yes, force }: SyncOptions,
  report: (line: string) => void = print,
): Promise<void> {
  const instance = openInstance(directory)
  const database = openDatabase(instance, 'key_manager', 'key-manager sync-projects')
  try {
    // In this order, so that a project created in between does not look deleted.
    const held = await listHeldProjects(database)
    const existing = await existingProjects(
      instance,
      held.map(({ projectId }) => projectId),
    )
    const deleted = held.filter(({ projectId }) => !existing.has(projectId))
    if (deleted.length === 0) {
      report(`Nothing to erase: the identity service has every project of the key manager (${held.length}).`)
      return
    }
    report(`The key manager holds data for ${held.length} projects. The identity service no longer has these:`)
    for (const line of table([['PROJECT', 'SECRETS', 'CONTAINERS', 'ORDERS'], ...deleted.map(rowOf)])) report(line)
    if (!force && deleted.length * 2 > held.length) {
      throw new OperatorError(
        `Most projects are missing (${deleted.length} of ${held.length}), so this is probably the wrong identity service or an old copy of its database. Nothing was erased. If it is the right one, use --force.`,
      )
    }
    if (!yes) {
      report('Nothing was erased. Use --yes to erase their data for good.')
      return
    }
    await eraseAll(database, deleted, report)
  } finally {
    await database.destroy()
  }
}

async function eraseAll(
  database: Database,
  deleted: readonly HeldProject[],
  report: (line: string) => void,
): Promise<void> {
  for (const { projectId } of deleted) {
    const { secrets, containers, orders } = await eraseProject(database, projectId)
    report(`Erased: ${projectId} (${secrets} secrets, ${containers} containers, ${orders} orders)`)
  }
}

const rowOf = ({ projectId, secrets, containers, orders }: HeldProject): string[] => [
  projectId,
  String(secrets),
  String(containers),
  String(orders),
]

/** The projects that the identity service has: from Krater's own tables, or from an external Keystone. */
async function existingProjects(instance: Instance, ids: readonly string[]): Promise<ReadonlySet<string>> {
  const external = externalIdentity(instance.config)
  if (external !== null) {
    return findExistingProjects(external, ids).catch(error => {
      throw error instanceof IdentityUnavailable ? new OperatorError(`${error.message}. Nothing was erased.`) : error
    })
  }
  const identity = openDatabase(instance, 'identity', 'key-manager sync-projects')
  try {
    const rows = await many(identity, sql<{ id: string }>`SELECT id FROM project`)
    return new Set(rows.map(({ id }) => id))
  } finally {
    await identity.destroy()
  }
}
