import type * as z from 'zod'
import type { Answer } from '../../api/answer.js'
import { objectOf, type Parameter, ref, type Schema } from '../../api/schema.js'
import { type Fragment, identifier, sql, trusted } from '../../database/sql.js'
import { forbidden } from '../../http/errors.js'
import { FIELDS, IDEMPOTENCY_KEY, listParameters } from '../description/parameters.js'
import { missing } from '../schema/faults.js'
import { listPage, type Page } from '../schema/list.js'
import { parseListQuery, parseShowQuery } from '../schema/list-query.js'
import { canonicalKey, type Resource } from '../schema/resource.js'
import { authorise, isAllowed, type Requester, type Right } from '../schema/rights.js'
import { type Presented, selectObject, wrapped } from '../schema/select.js'
import { type Handler, type LoadBalancerRoute, route } from './dialect.js'

/** `maxBytes`: unless the API's limit suffices. */
export type Action<Body> = { request: z.ZodType<Body>; handle: Handler<Body>; maxBytes?: number }

export type ObjectRoutes<Create, Update> = {
  /** Path of the collection. Its last segment is the heading in the API description. */
  path: string
  rights: { list?: Right; read: Right; write: Right }
  /** Default: the standard handlers. */
  list?: Handler
  show?: Handler
  create?: Action<Create>
  update?: Action<Update>
  remove: { handle: Handler; parameters?: readonly Parameter[] }
}

/** Routes that list, create, show, update and delete objects of a resource. */
export function objectRoutes<Create, Update>(
  resource: Resource,
  { path, rights, list, show, create, update, remove }: ObjectRoutes<Create, Update>,
): LoadBalancerRoute[] {
  const { singular, key } = resource
  const { read, write } = rights
  const group = lastSegment(path)
  const name = nameWithArticle(resource)
  const collection = { path, group } as const
  const item = { path: `${path}/:${key.column}`, group } as const
  const one = objectOf({ [singular]: ref(singular) })
  const form = (mode: 'create' | 'update'): Schema => objectOf({ [singular]: ref(`${singular}_${mode}`) })
  return [
    listRoute(resource, path, rights.list ?? read, list),
    ...(create === undefined
      ? []
      : [
          route({
            ...{ ...collection, method: 'POST', right: write, summary: `Create ${name}`, status: 201 },
            ...{ ...create, requestForm: form('create'), answer: one, parameters: [IDEMPOTENCY_KEY] },
          }),
        ]),
    route({
      ...{ ...item, method: 'GET', right: read, summary: `Show ${name}`, status: 200 },
      ...{ answer: one, parameters: [FIELDS], handle: show ?? showHandler(resource) },
    }),
    ...(update === undefined
      ? []
      : [
          route({
            ...{
              ...item,
              method: 'PUT',
              right: write,
              summary: `Update ${name}; omitted attributes keep their values`,
            },
            ...{ ...update, status: 200, requestForm: form('update'), answer: one },
          }),
        ]),
    route({ ...item, ...remove, method: 'DELETE', right: write, summary: `Delete ${name}`, status: 204 }),
  ]
}

/** Route that lists the objects of a resource. */
export function listRoute(
  resource: Resource,
  path: string,
  right: Right,
  handle = listHandler(resource),
): LoadBalancerRoute {
  const { singular, plural, links } = resource
  return route({
    ...{ method: 'GET', path, group: lastSegment(path), right, status: 200, handle },
    summary: `List ${plural.replaceAll('_', ' ')}`,
    parameters: listParameters(resource),
    answer: objectOf({ [plural]: { type: 'array', items: ref(singular) }, [links]: ref('links') }),
  })
}

const lastSegment = (path: string): string => path.split('/').at(-1) ?? ''

/** `a health monitor`, `an L7 policy`. */
function nameWithArticle({ label }: Resource): string {
  const words = label.split(' ').map(word => (word === 'L7' ? word : word.toLowerCase()))
  return `${/^[aeiouL]/.test(words[0] ?? '') ? 'an' : 'a'} ${words.join(' ')}`
}

/** Lists a resource: objects of the caller's project, or all objects if the caller may read every project. */
function listHandler(resource: Resource): Handler {
  return async ({ database, config }, { caller, queryString, url }, right) => {
    const query = parseListQuery(resource, queryString, config)
    const scope = projectScope(resource, caller, right, query.projectId)
    return pageAnswer(resource, await listPage(database, resource, { query, scope, url }))
  }
}

/** @throws ApiError 403 when the caller may not list the requested project, or any */
function projectScope(resource: Resource, caller: Requester, right: Right, named: string | null): Fragment {
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

/** Shows one object. `fields` is the only argument. */
function showHandler(resource: Resource): Handler {
  return async ({ database, config }, { caller, params, queryString }, right) => {
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
