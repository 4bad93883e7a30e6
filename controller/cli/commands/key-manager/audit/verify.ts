import { Option } from 'commander'
import { forgedHead, readHead } from '../../../../key-manager/audit/head.js'
import { verifyAudit } from '../../../../key-manager/audit/read.js'
import type { Command } from '../../../command.js'
import { OperatorError } from '../../../operator-error.js'
import { auditHeadFile, keyFiles, loadKeyManagerAuditKey } from '../../../state-directory/keys.js'
import { print } from '../../../terminal.js'
import { openDatabase, openInstance } from '../../../wiring/instance.js'

export const command: Command = {
  options: [new Option('--noted <position:hash>', 'what an earlier check printed: it must still be there')],
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

function parseNoted(text: string): { position: number; hash: string } {
  const [, position, hash] = /^(\d{1,15}):([0-9a-f]{64})$/.exec(text) ?? []
  if (position === undefined || hash === undefined) {
    throw new OperatorError(`"${text}" is not what \`krater key-manager audit verify\` prints: position:hash.`)
  }
  return { position: Number(position), hash }
}
