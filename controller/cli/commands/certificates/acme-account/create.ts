import { Option } from 'commander'
import * as z from 'zod'
import { signInAsCaller } from '../../../api-client.js'
import type { Command } from '../../../command.js'
import { print, visible } from '../../../terminal.js'

const madeKey = z.object({ key_id: z.string(), hmac_key: z.string(), directory: z.string() })

export const command: Command = {
  options: [new Option('--name <name>', 'what the key is for, such as the host that runs the ACME client')],
  run: async (directory, given) => {
    const { name } = given as { name?: string }
    const api = await signInAsCaller(directory)
    const body = name === undefined ? {} : { name }
    const made = madeKey.parse(await api.request('key-manager', 'POST', '/v1/acme-accounts', body))
    for (const line of linesFor(made)) print(visible(line))
  },
}

const linesFor = ({ key_id, hmac_key, directory }: z.output<typeof madeKey>): string[] => [
  `directory   ${directory}`,
  `key id      ${key_id}`,
  `HMAC key    ${hmac_key}`,
  'The HMAC key is not shown again. It creates ACME accounts of the project until it is revoked:',
  `krater certificates acme-account revoke ${key_id}`,
]
