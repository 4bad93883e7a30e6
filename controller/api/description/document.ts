import type { Described } from '../described.js'
import { formOf, type OpenApi, type Parameter, ref, type Schema } from '../schema.js'
import { codeSamples, type Examples } from './examples.js'

/** The texts of a document that do not come from its routes. */
export type DescriptionTexts<Route extends Described> = {
  title: string
  version: string
  summary: string
  description: string
  /** A sentence about each group of routes, in the order in which they are shown. */
  groups: Readonly<Record<string, string>>
  schemas: Readonly<Record<string, Schema>>
  /** Parameters that routes refer to. */
  parameters?: Readonly<Record<string, Parameter>>
  /** The meaning and the schema's name of each error status. */
  errors: Readonly<Record<number, readonly [meaning: string, schema: string]>>
  errorsOf: (route: Route) => readonly number[]
  examples: Examples
  /** A sentence about who may use a route, and the name of the right. */
  rightOf: (route: Route) => { sentence: string; name?: string }
  /** Describes a named segment of a route's path. */
  pathParameter: (name: string, route: Route) => { description: string; schema: Schema }
  /** The path under which the document shows a route, with `:name` for its parameters. */
  pathOf?: (route: Route) => string
  /** The path from which the operation id is derived, if not the path shown. */
  namingPathOf?: (route: Route) => string
  /** Paths without a route, such as a health check. */
  otherPaths?: Readonly<Record<string, Schema>>
}

/** The OpenAPI 3.1 document of an API, generated from its routes. Pure. */
export function openApiDocument<Route extends Described>(
  routes: readonly Route[],
  texts: DescriptionTexts<Route>,
): OpenApi {
  const { title, version, summary, description, groups, schemas, parameters, errors } = texts
  const used = new Set(routes.map(({ group }) => group))
  // At the end: it is about the API itself.
  if (used.delete(OPEN_GROUP)) used.add(OPEN_GROUP)
  const names = [...new Set([...Object.keys(groups), ...used])].filter(name => used.has(name))
  return {
    openapi: '3.1.1',
    info: { title, version, summary, description },
    // Relative to the URL of this document.
    servers: [{ url: '.' }],
    security: [{ token: [] }],
    'x-urlVariable': texts.examples.urlVariable,
    tags: names.map(name => ({
      name,
      description: name === OPEN_GROUP ? 'The API itself.' : (groups[name] ?? `The ${name}.`),
    })),
    paths: { ...pathsOf(routes, texts), ...texts.otherPaths },
    components: {
      securitySchemes: {
        token: { type: 'apiKey', in: 'header', name: 'X-Auth-Token', description: 'A token of the identity service.' },
      },
      schemas,
      ...(parameters !== undefined && { parameters }),
      headers: {
        request_id: { description: 'Id of the request.', schema: { type: 'string' } },
      },
      responses: Object.fromEntries(
        Object.entries(errors).map(([status, [meaning, schema]]) => [
          `error_${status}`,
          answerOf(meaning, ref(schema), 'application/json'),
        ]),
      ),
    },
  }
}

/** Group of the routes about the API itself. */
const OPEN_GROUP = 'service'

function pathsOf<Route extends Described>(
  routes: readonly Route[],
  texts: DescriptionTexts<Route>,
): Record<string, Schema> {
  const paths: Record<string, Schema> = {}
  for (const route of routes) {
    const written = texts.pathOf?.(route) ?? route.path
    const path = written.replace(/:(\w+)/g, '{$1}')
    const named = [...written.matchAll(/:(\w+)/g)].map(([, name = '']) => ({
      name,
      in: 'path',
      required: true,
      ...texts.pathParameter(name, route),
    }))
    const item = paths[path] ?? (named.length === 0 ? {} : { parameters: named })
    paths[path] = { ...item, [route.method.toLowerCase()]: operationOf(route, written, texts) }
  }
  return paths
}

function operationOf<Route extends Described>(route: Route, path: string, texts: DescriptionTexts<Route>): Schema {
  const { method, group, summary, status, request, requestForm, answer, answerType, parameters = [] } = route
  const isOpen = 'open' in route
  const form = requestForm ?? (request === undefined ? undefined : formOf(request))
  const right = isOpen ? undefined : texts.rightOf(route)
  return {
    operationId: operationIdOf(method, texts.namingPathOf?.(route) ?? path),
    tags: [group],
    summary,
    description: right?.sentence ?? 'Needs no token.',
    ...(isOpen && { security: [] }),
    ...(parameters.length === 0 ? {} : { parameters }),
    ...(form === undefined
      ? {}
      : { requestBody: { required: true, content: { 'application/json': { schema: form } } } }),
    responses: {
      [status]: answerOf(answer === undefined ? 'Success, without a body.' : summary, answer, answerType),
      ...Object.fromEntries(
        [...texts.errorsOf(route)].sort().map(code => [code, { $ref: `#/components/responses/error_${code}` }]),
      ),
    },
    ...(right?.name !== undefined && { 'x-right': right.name }),
    'x-codeSamples': codeSamples({ method, answer, open: isOpen }, path, texts.examples),
  }
}

function operationIdOf(method: string, path: string): string {
  const words = path
    .split('/')
    .filter(segment => segment !== '')
    .map(segment => (segment.startsWith(':') ? `by_${segment.slice(1)}` : segment.replaceAll(/[^A-Za-z0-9]+/g, '_')))
  return [method.toLowerCase(), ...words].join('_')
}

const answerOf = (description: string, schema: Schema | undefined, type = 'application/json'): Schema => ({
  description,
  headers: { 'X-Openstack-Request-Id': { $ref: '#/components/headers/request_id' } },
  ...(schema === undefined ? {} : { content: { [type]: { schema } } }),
})
