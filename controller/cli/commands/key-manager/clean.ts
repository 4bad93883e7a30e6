import { InvalidArgumentError, Option } from 'commander'
import type { Database } from '../../../database/connection.js'
import { type AuditRetention, BrokenAuditChain, countPrunable, pruneAudit } from '../../../key-manager/audit/prune.js'
import { clean, tryCleaning } from '../../../key-manager/housekeeping/clean.js'
import type { Command } from '../../command.js'
import { OperatorError } from '../../operator-error.js'
import { keyFiles, loadKeyManagerAuditKey } from '../../state-directory/keys.js'
import { print } from '../../terminal.js'
import { openDatabase, openInstance } from '../../wiring/instance.js'

const MOST_DAYS = 36_500

export const command: Command = {
  options: [
    new Option('--min-days <n>', 'what was deleted longer ago than this (default: the setting)').argParser(parseDays),
    new Option('--expired', 'also delete secrets that are past their time'),
    new Option('--unused-projects', 'also remove the keys of projects that have nothing any more'),
    new Option('--dry-run', 'only say how much it would be'),
  ],
  run: cleanKeyManager,
}

type CleanOptions = { minDays?: number; expired?: boolean; unusedProjects?: boolean; dryRun?: boolean }

/** Purges deleted objects and audit records past their retention, and more on request, and prints how many. */
async function cleanKeyManager(directory: string, options: CleanOptions): Promise<void> {
  const instance = openInstance(directory)
  const cleaning = {
    minDays: options.minDays ?? instance.config.key_manager.housekeeping.min_days,
    expired: options.expired ?? false,
    unusedProjects: options.unusedProjects ?? false,
  }
  const database = openDatabase(instance, 'key_manager', 'clean')
  try {
    const { expired, purged, projectKeys } = await (options.dryRun ? tryCleaning : clean)(database, cleaning)
    if (expired !== null) print(`Expired secrets deleted: ${expired}`)
    print(`Deleted more than ${cleaning.minDays} days ago and purged now:`)
    for (const [kind, count] of Object.entries(purged)) print(`  ${kind}: ${count}`)
    if (projectKeys !== null) print(`Keys of projects without anything removed: ${projectKeys}`)
    const days = instance.config.key_manager.audit_retention_days
    if (days !== null) {
      const key = loadKeyManagerAuditKey(keyFiles(instance.config, directory))
      print(`Audit records removed, older than ${days} days: ${await pruned(database, { days, key }, options)}`)
    }
    if (options.dryRun) print('This was a dry run: nothing was changed.')
  } finally {
    await database.destroy()
  }
}

async function pruned(database: Database, retention: AuditRetention, { dryRun }: CleanOptions): Promise<number> {
  if (dryRun) return countPrunable(database, retention.days)
  return pruneAudit(database, retention).catch(error => {
    if (error instanceof BrokenAuditChain) throw new OperatorError(`The audit log is left as it is: ${error.message}`)
    throw error
  })
}

function parseDays(text: string): number {
  const days = Number(text)
  if (!/^\d+$/.test(text) || days > MOST_DAYS) {
    throw new InvalidArgumentError(`It must be a whole number from 0 to ${MOST_DAYS}.`)
  }
  return days
}
