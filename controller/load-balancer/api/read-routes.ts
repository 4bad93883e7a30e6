import type { Answer } from '../../api/answer.js'
import { type Fragment, identifier, sql, trusted } from '../../database/sql.js'
import { forbidden } from '../../http/errors.js'
import type { Caller } from '../../identity/caller.js'
import { missing } from '../schema/faults.js'
import { listPage, type Page } from '../schema/list.js'
import { parseListQuery, parseShowQuery } from '../schema/list-query.js'
import { canonicalKey, type Resource } from '../schema/resource.js'
import { authorise, isAllowed, type Right } from '../schema/rights.js'
import { type Presented, selectObject, wrapped } from '../schema/select.js'
import type { Service } from '../schema/service.js'
import type { Handler } from './routes.js'

/** The list of a resource: of what belongs to projects the caller's own, or all for those who may read everywhere. */
export function listHandler({ database, config }: Service, resource: Resource): Handler {
  return async ({ caller, right, queryString, url }) => {
    const query = parseListQuery(resource, queryString, config)
    const scope = projectScope(resource, caller, right, query.projectId)
    return pageAnswer(resource, await listPage(database, resource, { query, scope, url }))
  }
}

/** @throws ApiError 403 when the caller may list no project, or not the one it names */
function projectScope(resource: Resource, caller: Caller, right: Right, named: string | null): Fragment {
  if (isAllowed(caller, right, null)) return sql`true`
  const own = caller.project?.id ?? null
  if (resource.project === null) {
    authorise(caller, right, own)
    return sql`true`
  }
  if (own === null || (named !== null && named !== own)) throw forbidden()
  authorise(caller, right, own)
  return sql`${trusted(resource.project)} = ${own}`
}

export function pageAnswer(resource: Resource, page: Page): Answer {
  const objects = page.objects.map(object => object.body).join(',')
  const json = `{"${resource.plural}":[${objects}],"${resource.links}":${JSON.stringify(page.links)}}`
  return { status: 200, json }
}

/** One object; the request's only argument may be `fields`. */
export function showHandler({ database, config }: Service, resource: Resource): Handler {
  return async ({ caller, right, params, queryString }) => {
    const fields = parseShowQuery(queryString, config)
    const id = params[resource.key.column] ?? ''
    if (resource.project === null) authorise(caller, right, caller.project?.id ?? null)
    const key = canonicalKey(resource, id)
    const object =
      key === null
        ? undefined
        : await selectObject(database, resource, sql`${identifier('o', resource.key.column)} = ${key}`, fields)
    if (object === undefined) throw missing(resource.label, id)
    if (resource.project !== null) authorise(caller, right, object.projectId)
    return objectAnswer(200, resource, object)
  }
}

export const objectAnswer = (status: number, resource: Resource, object: Presented): Answer => ({
  status,
  json: wrapped(resource.singular, object.body),
})
