import { createMasterKey } from '../../../../key-manager/crypto/pkcs11/backend.js'
import type { Command } from '../../../command.js'
import { OperatorError } from '../../../operator-error.js'
import { print } from '../../../terminal.js'
import { labelOption, withToken } from './token.js'

export const command: Command = {
  options: [labelOption],
  run: (directory, { label }: { label?: string }) => createMasterKeyInToken(directory, label),
}

/** Creates a master key in the token. */
async function createMasterKeyInToken(directory: string, label: string | undefined): Promise<void> {
  await withToken(directory, label, async token => {
    if (!(await createMasterKey(token.client, token.label))) {
      throw new OperatorError(`A key labelled ${token.label} already exists in ${token.origin}; it was not changed.`)
    }
    print(`Created the master key ${token.label} in ${token.origin}. It never leaves the token.`)
  })
}
