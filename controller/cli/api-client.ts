import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parse } from 'yaml'
import { z } from 'zod'
import { OperatorError } from './operator-error.js'

const TIMEOUT_MS = 20_000

const cloudSchema = z.object({
  auth: z.object({
    auth_url: z.string(),
    username: z.string(),
    password: z.string(),
    project_name: z.string(),
    user_domain_name: z.string(),
    project_domain_name: z.string(),
  }),
  region_name: z.string(),
})

const tokenSchema = z.object({
  token: z.object({
    project: z.object({ id: z.string() }),
    catalog: z.array(
      z.object({ type: z.string(), endpoints: z.array(z.object({ interface: z.string(), url: z.string() })) }),
    ),
  }),
})

export type ServiceType = 'load-balancer' | 'network' | 'identity' | 'key-manager'

/** A signed-in client of the public APIs. */
export type ApiClient = {
  projectId: string
  token: string
  urlOf: (service: ServiceType) => string
  /** @returns the body of the answer; undefined without one. @throws ApiRefusal when the status is not 2xx */
  request: (service: ServiceType, method: string, path: string, body?: unknown) => Promise<unknown>
}

export class ApiRefusal extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message)
  }
}

type CloudName = 'krater' | 'krater-admin'

/** A cloud from the instance's clouds.yaml. */
export function readCloud(directory: string, cloud: CloudName): z.output<typeof cloudSchema> {
  const text = readFileSync(join(directory, 'clouds.yaml'), 'utf8')
  return cloudSchema.parse((parse(text) as { clouds: Record<string, unknown> }).clouds[cloud])
}

/** Signs in with a cloud from the instance's clouds.yaml and reads the catalogue. */
export async function signIn(directory: string, cloud: CloudName): Promise<ApiClient> {
  const { auth } = readCloud(directory, cloud)
  const answer = await call(`${auth.auth_url}/auth/tokens`, 'POST', {
    auth: {
      identity: {
        methods: ['password'],
        password: {
          user: { name: auth.username, password: auth.password, domain: { name: auth.user_domain_name } },
        },
      },
      scope: { project: { name: auth.project_name, domain: { name: auth.project_domain_name } } },
    },
  })
  const token = answer.headers.get('X-Subject-Token') ?? ''
  const { project, catalog } = tokenSchema.parse(answer.body).token
  const urlOf = (service: ServiceType): string => {
    const endpoint = catalog.find(({ type }) => type === service)?.endpoints.find(entry => entry.interface === 'public')
    if (endpoint === undefined)
      throw new OperatorError(`The catalogue has no public endpoint for the ${service} service.`)
    return endpoint.url.replace(/\/$/, '')
  }
  return {
    projectId: project.id,
    token,
    urlOf,
    request: async (service, method, path, body) =>
      (await call(`${urlOf(service)}${path}`, method, body, { 'X-Auth-Token': token })).body,
  }
}

async function call(
  url: string,
  method: string,
  body: unknown,
  headers: Record<string, string> = {},
): Promise<{ headers: Headers; body: unknown }> {
  const response = await fetch(url, {
    method,
    headers: { ...headers, ...(body === undefined ? {} : { 'Content-Type': 'application/json' }) },
    body: body === undefined ? null : JSON.stringify(body),
    signal: AbortSignal.timeout(TIMEOUT_MS),
  }).catch(error => {
    throw new OperatorError(`No answer to ${method} ${url}: ${error.cause?.message ?? error.message}`)
  })
  const text = await response.text()
  if (!response.ok) throw new ApiRefusal(response.status, `${method} ${url}: ${response.status} ${text.slice(0, 500)}`)
  return { headers: response.headers, body: text === '' ? undefined : JSON.parse(text) }
}
