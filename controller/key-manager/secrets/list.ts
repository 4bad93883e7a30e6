import { and } from '../../database/sql.js'
import { pageJson, pageOf, readPage } from '../paging.js'
import type { Answer, Call, Service } from '../routes.js'
import { conditionsOf, orderOf } from './filters.js'
import { secretJson } from './secret.js'

/** One page of the secrets that the query asks for, in one statement. */
export async function listSecrets({ database, config }: Service, call: Call): Promise<Answer> {
  const page = pageOf(call.query, config)
  const { items, total } = await readPage(
    database,
    {
      table: 'secret s',
      where: and(conditionsOf(call.query, call.who)),
      order: orderOf(call.query),
      json: secretJson(call.minor >= 1),
    },
    page,
    call.base,
  )
  const url = `${call.base}/v1/secrets`
  return { status: 200, json: pageJson('secrets', items, total, { page, query: call.query, url }) }
}
