import { InvalidArgumentError, Option } from 'commander'
import type { Database } from '../../../database/connection.js'
import { type AuditRetention, BrokenAuditChain, countPrunable, pruneAudit } from '../../../key-manager/audit/prune.js'
import { clean, previewCleaning } from '../../../key-manager/housekeeping/clean.js'
import type { Command } from '../../command.js'
import { OperatorError } from '../../operator-error.js'
import { keyFiles, loadKeyManagerAuditKey } from '../../state-directory/keys.js'
import { print } from '../../terminal.js'
import { openDatabase, openInstance } from '../../wiring/instance.js'

const MAX_DAYS = 36_500

export const command: Command = {
  options: [
    new Option(
      '--min-days <n>',
      'purge objects deleted more than <n> days ago (default: key_manager.housekeeping.min_days)',
    ).argParser(parseDays),
    new Option('--expired', 'also delete expired secrets'),
    new Option('--unused-projects', 'also remove the keys of projects that have no data left'),
    new Option('--dry-run', 'only print how much would be removed'),
  ],
  run: cleanKeyManager,
}

type CleanOptions = { minDays?: number; expired?: boolean; unusedProjects?: boolean; dryRun?: boolean }

const DID = ['Deleted', 'Purged', 'Removed'] as const
const WOULD = ['Would delete', 'Would purge', 'Would remove'] as const

/** Purges deleted objects and audit records past their retention, and more on request. Prints how many. */
async function cleanKeyManager(directory: string, options: CleanOptions): Promise<void> {
  const instance = openInstance(directory)
  const cleaning = {
    minDays: options.minDays ?? instance.config.key_manager.housekeeping.min_days,
    expired: options.expired ?? false,
    unusedProjects: options.unusedProjects ?? false,
  }
  const database = openDatabase(instance, 'key_manager', 'clean')
  try {
    const { expired, purged, projectKeys } = await (options.dryRun ? previewCleaning : clean)(database, cleaning)
    const [deleted, purgedWord, removed] = options.dryRun ? WOULD : DID
    if (expired !== null) print(`${deleted} expired secrets: ${expired}`)
    print(`${purgedWord} objects that were deleted more than ${cleaning.minDays} days ago:`)
    for (const [kind, count] of Object.entries(purged)) print(`  ${kind}: ${count}`)
    if (projectKeys !== null) print(`${removed} keys of projects without data: ${projectKeys}`)
    const days = instance.config.key_manager.audit_retention_days
    if (days !== null) {
      const key = loadKeyManagerAuditKey(keyFiles(instance.config, directory))
      print(`${removed} audit records older than ${days} days: ${await prune(database, { days, key }, options)}`)
    }
    if (options.dryRun) print('This was a dry run; nothing was changed.')
  } finally {
    await database.destroy()
  }
}

async function prune(database: Database, retention: AuditRetention, { dryRun }: CleanOptions): Promise<number> {
  if (dryRun) return countPrunable(database, retention.days)
  return pruneAudit(database, retention).catch(error => {
    if (error instanceof BrokenAuditChain) throw new OperatorError(`The audit log was not changed: ${error.message}`)
    throw error
  })
}

function parseDays(text: string): number {
  const days = Number(text)
  if (!/^\d+$/.test(text) || days > MAX_DAYS) {
    throw new InvalidArgumentError(`It must be a whole number from 0 to ${MAX_DAYS}.`)
  }
  return days
}
