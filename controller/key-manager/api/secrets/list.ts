import type { Answer } from '../../../api/answer.js'
import type { Parameter } from '../../../api/schema.js'
import { and } from '../../../database/sql.js'
import { secretJson } from '../../secrets/secret.js'
import type { ApiService, Call } from '../dialect.js'
import { filter, pageJson, parsePage, readPage } from '../paging.js'
import { listConditions, listOrder } from './filters.js'

/** The filters of a list of secrets. */
export const LIST_PARAMETERS: readonly Parameter[] = Object.entries({
  name: 'Only secrets with this name.',
  alg: 'Only secrets with this algorithm.',
  mode: 'Only secrets with this mode.',
  bits: 'Only secrets with this length in bits.',
  secret_type: 'Only secrets of this type.',
  created: 'When the secret was stored: comma-separated times, each with an optional prefix gt:, gte:, lt: or lte:.',
  updated: 'When the secret was changed, in the format of created.',
  expiration: 'When the secret expires, in the format of created.',
  expiring_in_days: 'Only secrets that expire within this many days.',
  acl_only: 'Whether to list only secrets whose ACL has the caller.',
  sort: 'Comma-separated sort keys, each with an optional suffix :asc or :desc.',
}).map(([name, description]) => filter(name, description))

/** Lists one page of the secrets that the query asks for, in one statement. */
export async function listSecrets({ database, config }: ApiService, call: Call): Promise<Answer> {
  const page = parsePage(call.query, config)
  const { items, total } = await readPage(
    database,
    {
      table: 'secret s',
      where: and(listConditions(call.query, call.caller)),
      order: listOrder(call.query),
      json: secretJson(call.minor >= 1),
    },
    page,
    call.base,
  )
  const url = `${call.base}/v1/secrets`
  return { status: 200, json: pageJson('secrets', items, total, { page, query: call.query, url }) }
}
