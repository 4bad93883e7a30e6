import { Option } from 'commander'
import type { Database } from '../../../database/connection.js'
import { many } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'
import { externalIdentity } from '../../../identity/external/external-identity.js'
import { IdentityAway } from '../../../identity/external/identity-away.js'
import { standingProjects } from '../../../identity/external/projects.js'
import { eraseProject } from '../../../key-manager/erase-project.js'
import { type HeldProject, heldProjects } from '../../../key-manager/held-projects.js'
import type { Command } from '../../command.js'
import { OperatorError } from '../../operator-error.js'
import { print, table } from '../../terminal.js'
import { type Instance, openDatabase, openInstance } from '../../wiring/instance.js'

export const command: Command = {
  options: [
    new Option('--yes', 'erase what is held for them'),
    new Option('--force', 'also when most projects are missing'),
  ],
  run: (directory, options: SyncOptions) => syncProjects(directory, options),
}

export type SyncOptions = {
  /** Erase, rather than only show. */
  yes?: boolean
  /** Also when most projects are missing. */
  force?: boolean
}

/**
 * Lists projects that the key manager holds data for but the identity service no longer has, and erases that data.
 * @param report prints a line for the user
 * @throws OperatorError when the identity service does not answer, or lacks so many projects that it is probably the wrong one
 */
export async function syncProjects(
  directory: string,
  { yes, force }: SyncOptions,
  report: (line: string) => void = print,
): Promise<void> {
  const instance = openInstance(directory)
  const database = openDatabase(instance, 'key_manager', 'key-manager sync-projects')
  try {
    // In this order, so that a project created meanwhile does not look deleted.
    const held = await heldProjects(database)
    const standing = await standingAt(
      instance,
      held.map(({ projectId }) => projectId),
    )
    const gone = held.filter(({ projectId }) => !standing.has(projectId))
    if (gone.length === 0) {
      report(`Nothing to erase: the identity service has all projects of the key manager's (${held.length}).`)
      return
    }
    report(`The key manager holds something for ${held.length} projects. The identity service has these no more:`)
    for (const line of table([['PROJECT', 'SECRETS', 'CONTAINERS', 'ORDERS'], ...gone.map(rowOf)])) report(line)
    if (!force && gone.length * 2 > held.length) {
      throw new OperatorError(
        `Most projects are missing (${gone.length} of ${held.length}): the identity service, or its database, is probably a wrong or an old one. Nothing was erased. If it is right, --force goes on.`,
      )
    }
    if (!yes) {
      report('Nothing was erased. --yes erases what is held for them; it cannot be brought back.')
      return
    }
    await eraseAll(database, gone, report)
  } finally {
    await database.destroy()
  }
}

async function eraseAll(
  database: Database,
  gone: readonly HeldProject[],
  report: (line: string) => void,
): Promise<void> {
  for (const { projectId } of gone) {
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

/** The projects that the identity service has: from our own tables, or from an external Keystone. */
async function standingAt(instance: Instance, ids: readonly string[]): Promise<ReadonlySet<string>> {
  const external = externalIdentity(instance.config)
  if (external !== null) {
    return standingProjects(external, ids).catch(error => {
      throw error instanceof IdentityAway ? new OperatorError(`${error.message}. Nothing was erased.`) : error
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
