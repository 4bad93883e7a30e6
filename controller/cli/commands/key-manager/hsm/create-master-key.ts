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
      throw new OperatorError(`There is a key labelled ${token.label} in ${token.origin} already; it stays as it is.`)
    }
    print(`The master key ${token.label} was made in ${token.origin}; it never leaves it.`)
  })
}
