import { Option } from 'commander'
import { forgedHead, readHead } from '../../../../key-manager/audit/head.js'
import { verifyAudit } from '../../../../key-manager/audit/read.js'
import type { Command } from '../../../command.js'
import { UsageError } from '../../../operator-error.js'
import { auditHeadFile, keyFiles, loadKeyManagerAuditKey } from '../../../state-directory/keys.js'
import { print } from '../../../terminal.js'
import { openDatabase, openInstance } from '../../../wiring/instance.js'

export const command: Command = {
  options: [new Option('--noted <position:hash>', 'printed by an earlier check; this record must still exist')],
  run: (directory, { noted }: { noted?: string }) => verifyAuditLog(directory, noted),
}

/**
 * Checks the whole audit log.
 * @param noted `position:hash` of an earlier check
 * @returns the exit status: 1 when the log is not intact
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
      print(`There is no ${headFile} to compare the end of the chain with: no key manager worker runs on this machine.`)
    const { verified, head, waiting, waitingSince, fault, removed } = await verifyAudit(database, key, expected, kept)
    if (waiting > 0) {
      print(
        `${waiting} records are not linked yet, the oldest since ${waitingSince}. The key manager's worker links records within a second.`,
      )
    }
    if (removed !== null) {
      print(`Retention removed ${removed.records} records from before ${removed.before} UTC.`)
    }
    if (fault !== null) {
      print(`The first ${verified} records are unchanged. Then: ${fault}`)
      return 1
    }
    print(`All ${verified} records are unchanged.`)
    if (head !== null) {
      print(
        `The last is from ${head.at} UTC. To check later that nothing up to it was removed, run this with --noted ${head.position}:${head.hash}`,
      )
    }
    return 0
  } finally {
    await database.destroy()
  }
}

function parseNoted(text: string): { position: number; hash: string } {
  const [, position, hash] = /^(\d{1,15}):([0-9a-f]{64})$/.exec(text) ?? []
  if (position === undefined || hash === undefined) {
    throw new UsageError(`"${text}" is not a position:hash as \`krater key-manager audit verify\` prints it.`)
  }
  return { position: Number(position), hash }
}
