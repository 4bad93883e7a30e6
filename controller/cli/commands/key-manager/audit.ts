import { createWriteStream } from 'node:fs'
import { pipeline } from 'node:stream/promises'
import { followChain, forgedHead, readHead, writeHead } from '../../../key-manager/audit/head.js'
import { linkRecords } from '../../../key-manager/audit/linker.js'
import { type ExportFilter, exportAudit, verifyAudit } from '../../../key-manager/audit/read.js'
import { recordAudit } from '../../../key-manager/audit/record.js'
import { OperatorError } from '../../operator-error.js'
import { auditHeadFile, keyFiles, loadKeyManagerAuditKey } from '../../state-directory/keys.js'
import { print } from '../../terminal.js'
import { openDatabase, openInstance } from '../../wiring/instance.js'

/**
 * Checks the whole audit log.
 * @param noted `position:hash` of an earlier check
 * @returns the exit status: 1 when something is wrong
 */
export async function verifyAuditLog(directory: string, noted: string | undefined): Promise<number> {
  const expected = noted === undefined ? null : parseNoted(noted)
  const instance = openInstance(directory)
  const key = loadKeyManagerAuditKey(keyFiles(instance.config, directory))
  const headFile = auditHeadFile(instance.config, directory)
  const kept = readHead(headFile, key)
  const database = openDatabase(instance, 'key_manager', 'audit')
  try {
    if (kept === 'forged') {
      print(forgedHead(headFile))
      return 1
    }
    if (kept === null)
      print(`${headFile} keeps no end of the chain: on this machine no worker of the key manager runs.`)
    const { verified, head, waiting, waitingSince, fault, removed } = await verifyAudit(database, key, expected, kept)
    if (waiting > 0) {
      print(
        `${waiting} records wait for their link, the oldest since ${waitingSince}; the key manager's worker links them within a second.`,
      )
    }
    if (removed !== null) {
      print(`${removed.records} records before ${removed.before} UTC were removed by retention.`)
    }
    if (fault !== null) {
      print(`${verified} records are as they were recorded. Then: ${fault}`)
      return 1
    }
    print(`${verified} records, all as they were recorded.`)
    if (head !== null) {
      print(
        `The last is of ${head.at} UTC. To see later that nothing before it was taken away, note: ${head.position}:${head.hash}`,
      )
    }
    return 0
  } finally {
    await database.destroy()
  }
}

/**
 * Takes the chain as it is now for the right one, after a restore say: what the worker of this machine kept of it is replaced. That is itself on
 * record, with what was kept before.
 * @throws OperatorError when the chain itself is not whole
 */
export async function acceptAuditLog(directory: string): Promise<void> {
  const instance = openInstance(directory)
  const key = loadKeyManagerAuditKey(keyFiles(instance.config, directory))
  const headFile = auditHeadFile(instance.config, directory)
  const kept = readHead(headFile, key)
  const database = openDatabase(instance, 'key_manager', 'audit')
  try {
    const before = kept === null || kept === 'forged' ? null : kept
    await recordAudit(
      database,
      { userId: null, projectId: null, requestId: null, remoteAddress: null },
      {
        action: 'audit.accept',
        outcome: 'success',
        targetType: 'audit',
        targetId: null,
        detail: { position: before?.position ?? null, hash: before?.hash.toString('hex') ?? null },
      },
    )
    while ((await linkRecords(database, key)) > 0);
    const found = await followChain(database, key, null)
    if (found.fault !== null || found.end === null)
      throw new OperatorError(`Nothing was accepted. ${found.fault ?? ''}`)
    writeHead(headFile, key, found.end)
    print(`The chain that ends with record ${found.end.position} is what the worker of this machine goes on from.`)
  } finally {
    await database.destroy()
  }
}

function parseNoted(text: string): { position: number; hash: string } {
  const [, position, hash] = /^(\d{1,15}):([0-9a-f]{64})$/.exec(text) ?? []
  if (position === undefined || hash === undefined) {
    throw new OperatorError(`"${text}" is not what \`krater key-manager audit verify\` prints: position:hash.`)
  }
  return { position: Number(position), hash }
}

export type ExportOptions = { from?: string; until?: string; project?: string; output?: string }

/** Writes the audit log as lines of JSON, to a file or to standard output. */
export async function exportAuditLog(directory: string, options: ExportOptions): Promise<void> {
  const filter: ExportFilter = {
    from: options.from === undefined ? null : timeOf(options.from),
    until: options.until === undefined ? null : timeOf(options.until),
    project: options.project ?? null,
  }
  const instance = openInstance(directory)
  const database = openDatabase(instance, 'key_manager', 'audit')
  const file = options.output === undefined ? null : createWriteStream(options.output, { mode: 0o600 })
  let count = 0
  async function* lines(): AsyncGenerator<string> {
    for await (const line of exportAudit(database, filter)) {
      count++
      yield `${line}\n`
    }
  }
  try {
    await pipeline(lines, file ?? process.stdout, { end: file !== null })
  } catch (error) {
    // A reader such as head that has seen enough is no failure.
    if (file === null && codeOf(error) === 'EPIPE') return
    throw file?.errored ? new OperatorError(`${options.output}: ${file.errored.message}`) : error
  } finally {
    await database.destroy()
  }
  if (file !== null) print(`${count} records are in ${options.output}.`)
}

const codeOf = (error: unknown): unknown => (error instanceof Error && 'code' in error ? error.code : undefined)

function timeOf(text: string): Date {
  const time = new Date(text)
  if (Number.isNaN(time.getTime())) throw new OperatorError(`"${text}" is not a time such as 2026-01-31T12:00:00Z.`)
  return time
}
