import { Argument } from 'commander'
import { ApiRefusal, signInAsCaller } from '../../../api-client.js'
import type { Command } from '../../../command.js'
import { OperatorError } from '../../../operator-error.js'
import { print } from '../../../terminal.js'

export const command: Command = {
  arguments: [new Argument('<key>', 'id of the key')],
  run: async (directory, given) => {
    const key = String(given.key)
    const api = await signInAsCaller(directory)
    await api.request('key-manager', 'DELETE', `/v1/acme-accounts/${encodeURIComponent(key)}`).catch(error => {
      if (!(error instanceof ApiRefusal) || error.status !== 404) throw error
      throw new OperatorError(
        `The project has no key "${key}" for ACME accounts. \`krater certificates acme-account list\` shows all.`,
      )
    })
    print(`Revoked ${key} and the accounts that it created. Certificates stay valid.`)
  },
}
