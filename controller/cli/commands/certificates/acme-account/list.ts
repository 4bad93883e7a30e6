import * as z from 'zod'
import { type ApiClient, signInAsCaller } from '../../../api-client.js'
import type { Command } from '../../../command.js'
import { print, table } from '../../../terminal.js'

const page = z.object({
  acme_accounts: z.array(
    z.object({
      key_id: z.string(),
      name: z.string().nullable(),
      status: z.string(),
      created: z.string(),
      accounts: z.number(),
    }),
  ),
  total: z.number(),
})

type Key = z.output<typeof page>['acme_accounts'][number]

const PAGE_SIZE = 100

export const command: Command = {
  run: async directory => {
    const keys = await readAll(await signInAsCaller(directory))
    if (keys.length === 0) {
      print('The project has no keys for ACME accounts. `krater certificates acme-account create` makes one.')
      return
    }
    const rows = keys.map(({ key_id, name, status, created, accounts }) => [
      ...[key_id, status.toLowerCase(), String(accounts), created, name ?? ''],
    ])
    for (const line of table([['key id', 'status', 'accounts', 'created', 'name'], ...rows])) print(line)
  },
}

async function readAll(api: ApiClient): Promise<Key[]> {
  const keys: Key[] = []
  for (;;) {
    const path = `/v1/acme-accounts?limit=${PAGE_SIZE}&offset=${keys.length}`
    const { acme_accounts, total } = page.parse(await api.request('key-manager', 'GET', path))
    keys.push(...acme_accounts)
    if (acme_accounts.length === 0 || keys.length >= total) return keys
  }
}
