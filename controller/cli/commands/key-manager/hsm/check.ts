import { createPkcs11Crypto, masterKeyAttributes } from '../../../../key-manager/crypto/pkcs11/backend.js'
import type { Command } from '../../../command.js'
import { OperatorError } from '../../../operator-error.js'
import { print, table } from '../../../terminal.js'
import { labelOption, withToken } from './token.js'

export const command: Command = {
  options: [labelOption],
  run: (directory, { label }: { label?: string }) => checkToken(directory, label),
}

/** Shows a master key's attributes and checks that it wraps and unwraps a usable key. */
async function checkToken(directory: string, label: string | undefined): Promise<void> {
  await withToken(directory, label, async ({ client, origin, label: checked }) => {
    const attributes = await masterKeyAttributes(client, checked)
    print(`${origin}, master key ${checked}:`)
    for (const line of table(Object.entries(attributes).map(([name, value]) => [name, value ? 'yes' : 'no'])))
      print(line)
    const backend = createPkcs11Crypto(client, checked, origin)
    const key = { id: 'check', ...(await backend.createProjectKey(checked)) }
    const sealed = await backend.encrypt(key, Buffer.from('check'), 'check')
    backend.forget(key.id)
    const opened = await backend.decrypt(key, sealed, 'check')
    if (opened.toString() !== 'check') throw new OperatorError('Decryption did not return the encrypted value.')
    print('Created, wrapped, unwrapped and used a key: everything works.')
  })
}
