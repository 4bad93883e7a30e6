import { Argument, Option } from 'commander'
import { parseSerialText } from '../../../../../x509/certificate.js'
import { isRevocationReason, REVOCATION_REASONS } from '../../../../../x509/revocation-list.js'
import { createCaBackends, findBackend } from '../../../../key-manager/certificate-authorities/backends.js'
import { CaFault } from '../../../../key-manager/certificate-authorities/ca-fault.js'
import type { Command } from '../../../command.js'
import { OperatorError, UsageError } from '../../../operator-error.js'
import { print } from '../../../terminal.js'
import { openKeyring } from '../../../wiring/key-manager/keyring.js'
import { authority, type Write, withRows } from './authority.js'

export const command: Command = {
  arguments: [
    new Argument('<ca>', 'id of the certificate authority'),
    new Argument('<serial>', 'serial number of the certificate, in hexadecimal'),
  ],
  options: [new Option('--reason <reason>', 'such as keyCompromise or superseded').default('unspecified')],
  run: (directory, revocation: Revocation) => revokeIssued(directory, revocation),
}

type Revocation = { ca: string; serial: string; reason: string }

/** Revokes a certificate. @throws OperatorError for an unknown CA, certificate or reason */
export async function revokeIssued(directory: string, revocation: Revocation, write: Write = print): Promise<void> {
  const { reason } = revocation
  if (!isRevocationReason(reason)) {
    throw new UsageError(`The reason must be one of ${Object.keys(REVOCATION_REASONS).join(', ')}.`)
  }
  const serial = parseSerialText(revocation.serial)
  if (serial === null) throw new UsageError(`"${revocation.serial}" is not a hexadecimal serial number.`)
  await withRows(directory, async (database, instance) => {
    const { id, pluginName } = await authority(database, revocation.ca)
    const keyring = await openKeyring(instance, database)
    try {
      const backends = createCaBackends({ database, keyring, config: instance.config.key_manager })
      const outcome = await findBackend(backends, pluginName)
        .revoke(id, serial, reason)
        .catch(error => {
          throw error instanceof CaFault ? new OperatorError(`The CA did not revoke it: ${error.message}`) : error
        })
      if (outcome === 'unknown') throw new OperatorError(`The CA ${id} has issued no certificate ${serial}.`)
      write(`The certificate ${serial} ${outcome === 'revoked' ? 'is revoked' : 'was already revoked'}.`)
    } finally {
      await Promise.all([...keyring.backends.values()].map(backend => backend.stop()))
    }
  })
}
