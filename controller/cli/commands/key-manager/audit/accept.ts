import { followChain, readHead, writeHead } from '../../../../key-manager/audit/head.js'
import { linkRecords } from '../../../../key-manager/audit/linker.js'
import { recordAudit } from '../../../../key-manager/audit/record.js'
import type { Command } from '../../../command.js'
import { OperatorError } from '../../../operator-error.js'
import { auditHeadFile, keyFiles, loadKeyManagerAuditKey } from '../../../state-directory/keys.js'
import { print } from '../../../terminal.js'
import { openDatabase, openInstance } from '../../../wiring/instance.js'

export const command: Command = { run: acceptAuditLog }

/**
 * Accepts the chain as it is now, for example after a restore: replaces the end of the chain that this machine's worker
 * kept. The audit log records the acceptance and the former end.
 * @throws OperatorError when the chain itself is broken
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
    print(`Accepted the chain up to record ${found.end.position}. The worker of this machine continues from there.`)
  } finally {
    await database.destroy()
  }
}
