import { createWriteStream } from 'node:fs'
import { pipeline } from 'node:stream/promises'
import { Option } from 'commander'
import { type ExportFilter, exportAudit } from '../../../../key-manager/audit/read.js'
import type { Command } from '../../../command.js'
import { writeOutput } from '../../../host/output-file.js'
import { UsageError } from '../../../operator-error.js'
import { print } from '../../../terminal.js'
import { openDatabase, openInstance } from '../../../wiring/instance.js'

export const command: Command = {
  options: [
    new Option('--from <time>', 'only records from this time on'),
    new Option('--until <time>', 'only records before this time'),
    new Option('--project <id>', 'only what callers in this project did'),
    new Option('--output <file>', 'write to this file instead of standard output'),
  ],
  run: exportAuditLog,
}

type ExportOptions = { from?: string; until?: string; project?: string; output?: string }

/** Writes the audit log as JSON lines to a file or to standard output. */
export async function exportAuditLog(directory: string, options: ExportOptions): Promise<void> {
  const filter: ExportFilter = {
    from: options.from === undefined ? null : timeOf(options.from),
    until: options.until === undefined ? null : timeOf(options.until),
    project: options.project ?? null,
  }
  const instance = openInstance(directory)
  const database = openDatabase(instance, 'key_manager', 'audit')
  let count = 0
  async function* lines(): AsyncGenerator<string> {
    for await (const line of exportAudit(database, filter)) {
      count++
      yield `${line}\n`
    }
  }
  const { output } = options
  try {
    if (output === undefined) await writeToPipe(lines())
    else {
      await writeOutput(output, path => pipeline(lines, createWriteStream(path)))
      print(`Wrote ${count} records to ${output}.`)
    }
  } finally {
    await database.destroy()
  }
}

/** A reader such as head may close the pipe early. */
async function writeToPipe(lines: AsyncGenerator<string>): Promise<void> {
  await pipeline(lines, process.stdout, { end: false }).catch(error => {
    if (codeOf(error) !== 'EPIPE') throw error
  })
}

const codeOf = (error: unknown): unknown => (error instanceof Error && 'code' in error ? error.code : undefined)

function timeOf(text: string): Date {
  const time = new Date(text)
  if (Number.isNaN(time.getTime())) throw new UsageError(`"${text}" is not a time. Write it as 2026-01-31T12:00:00Z.`)
  return time
}
