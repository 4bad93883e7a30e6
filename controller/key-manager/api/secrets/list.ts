import type { Answer } from '../../../api/answer.js'
import type { Parameter } from '../../../api/schema.js'
import { and } from '../../../database/sql.js'
import { secretJson } from '../../secrets/secret.js'
import type { ApiService, Call } from '../dialect.js'
import { filter, pageJson, pageOf, readPage } from '../paging.js'
import { conditionsOf, orderOf } from './filters.js'

/** What a list of secrets may be asked for. */
export const LIST_PARAMETERS: readonly Parameter[] = Object.entries({
  name: 'Only secrets of this name.',
  alg: 'Only secrets of this algorithm.',
  mode: 'Only secrets of this mode.',
  bits: 'Only secrets of this length in bits.',
  secret_type: 'Only secrets of this type.',
  created: 'When the secret was stored: times with gt:, gte:, lt: or lte: before them, with commas between them.',
  updated: 'When the secret was changed, written like created.',
  expiration: 'When the secret ends, written like created.',
  expiring_in_days: 'Only secrets that end within this many days.',
  acl_only: 'Whether only secrets are listed whose ACL names the caller.',
  sort: 'Names of members to sort by, with commas between them, each with :asc or :desc behind it where it is not ascending.',
}).map(([name, description]) => filter(name, description))

/** One page of the secrets that the query asks for, in one statement. */
export async function listSecrets({ database, config }: ApiService, call: Call): Promise<Answer> {
  const page = pageOf(call.query, config)
  const { items, total } = await readPage(
    database,
    {
      table: 'secret s',
      where: and(conditionsOf(call.query, call.caller)),
      order: orderOf(call.query),
      json: secretJson(call.minor >= 1),
    },
    page,
    call.base,
  )
  const url = `${call.base}/v1/secrets`
  return { status: 200, json: pageJson('secrets', items, total, { page, query: call.query, url }) }
}
