import { existsSync } from 'node:fs'
import type { IncomingHttpHeaders } from 'node:http'
import { join } from 'node:path'
import * as z from 'zod'
import { createExchange, type Exchange, NotConnected, type TransportSecurity } from '../http/exchange.js'
import { type Credentials, cloudIn, findCredentials, securityOf, tokenRequest } from './credentials.js'
import { OperatorError } from './operator-error.js'
import { visible } from './terminal.js'

const TIMEOUT_MS = 20_000
const CONNECT_SECONDS = 10
const MAX_CONNECTIONS = 16
/** More than the largest list. */
const MAX_ANSWER_BYTES = 64 * 1024 * 1024
const MESSAGE_KEYS: readonly string[] = ['message', 'faultstring', 'description']

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
  cacert: z.string().optional(),
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

/** An API did not answer, or not in time. */
export class NoAnswer extends OperatorError {}

/** An API refused a request. */
export class ApiRefusal extends OperatorError {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message)
  }
}

type CloudName = 'krater' | 'krater-admin'

/** A cloud from the instance's clouds.yaml. @throws OperatorError when the file is missing or lacks it */
export function readCloud(directory: string, cloud: CloudName): z.output<typeof cloudSchema> {
  const file = join(directory, 'clouds.yaml')
  if (!existsSync(file)) {
    throw new OperatorError(
      `${file} is missing, so nobody can sign in. \`krater up --detach\` writes it, unless identity.external_url names another Keystone.`,
    )
  }
  const parsed = cloudSchema.safeParse(cloudIn(file, cloud))
  if (parsed.success) return parsed.data
  throw new OperatorError(
    `${file} has no complete cloud "${cloud}". Remove the file and restart Krater, which writes it again: krater down && krater up --detach`,
  )
}

/** Signs in with a cloud from the instance's clouds.yaml and reads the catalogue. */
export async function signIn(directory: string, cloud: CloudName): Promise<ApiClient> {
  const { auth, cacert } = readCloud(directory, cloud)
  return signInWith(auth, securityOf({ cacert })).catch(error => {
    if (!(error instanceof ApiRefusal) || error.status !== 401) throw error
    throw new OperatorError(
      `The identity API at ${auth.auth_url} does not accept the user ${auth.username} with the password in ${join(directory, 'clouds.yaml')}. If it was changed, write the new one there.`,
    )
  })
}

/** Signs in as the caller of the command. @throws OperatorError without credentials, or when they are refused */
export async function signInAsCaller(directory: string): Promise<ApiClient> {
  const { credentials, security } = findCredentials(directory, process.env)
  return signInWith(credentials, security).catch(error => {
    if (!(error instanceof ApiRefusal) || error.status !== 401) throw error
    throw new OperatorError('The identity service does not accept the credentials (OS_* or clouds.yaml).')
  })
}

async function signInWith(credentials: Credentials, security: TransportSecurity): Promise<ApiClient> {
  const call = createCaller(security)
  const answer = await call(`${credentials.auth_url}/auth/tokens`, 'POST', tokenRequest(credentials))
  const token = String(answer.headers['x-subject-token'] ?? '')
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

type Answer = { headers: IncomingHttpHeaders; body: unknown }

type Caller = (url: string, method: string, body?: unknown, headers?: Record<string, string>) => Promise<Answer>

/** Sends requests over connections that are kept, one pool for each server. Idle ones keep no process alive. */
function createCaller(security: TransportSecurity): Caller {
  const exchanges = new Map<string, Exchange>()
  const exchangeWith = (url: string): Exchange => {
    const limits = { connectTimeoutSeconds: CONNECT_SECONDS, maxConnections: MAX_CONNECTIONS }
    const exchange = exchanges.get(url) ?? createExchange({ url, security, ...limits })
    exchanges.set(url, exchange)
    return exchange
  }
  return async (url, method, body, headers = {}) => {
    const signal = AbortSignal.timeout(TIMEOUT_MS)
    const { origin } = new URL(url)
    const request = {
      ...{ method, path: url.slice(origin.length), headers, maxAnswerBytes: MAX_ANSWER_BYTES },
      body: body === undefined ? undefined : Object(body),
    }
    const answer = await exchangeWith(origin)
      .send(request, signal)
      .catch((error: Error) => {
        throw noAnswer(method, url, error, signal.aborted)
      })
    const text = answer.bytes.toString('utf8')
    const content = text === '' ? undefined : jsonOrText(text)
    const { status } = answer
    if (status >= 200 && status < 300) return { headers: answer.headers, body: content }
    const advice = status === 401 || status === 403 ? ' Use a user with the right for it.' : ''
    throw new ApiRefusal(status, `${method} ${url} was refused (${status}): ${reasonIn(content)}${advice}`)
  }
}

/** The codes of OpenSSL and Node.js for certificates that are not trusted, or not those of the host. */
const CERTIFICATE_FAULT = /CERT|SELF_SIGNED|UNABLE_TO_/

function noAnswer(method: string, url: string, error: Error, isLate: boolean): NoAnswer {
  const { code } = (error instanceof NotConnected ? error.cause : error) as { code?: string }
  const why = isLate ? `within ${TIMEOUT_MS / 1000} s` : `(${code ?? error.message})`
  const advice = CERTIFICATE_FAULT.test(code ?? '')
    ? `Its certificate is not accepted: ${error.message}. Set cacert in clouds.yaml, or OS_CACERT, to the PEM file of its CA.`
    : '`krater up --detach` starts the APIs; if they run, `krater doctor` finds out what is wrong.'
  return new NoAnswer(`${method} ${url} got no answer ${why}. ${advice}`)
}

function jsonOrText(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}

/** The reason in an answer of any OpenStack API, as one line. */
function reasonIn(answer: unknown): string {
  const text = messageIn(answer) ?? (typeof answer === 'string' ? answer : JSON.stringify(answer))
  const line = visible((text ?? 'no reason given').replaceAll(/\s+/g, ' ').trim()).slice(0, 500)
  return /[.!?]$/.test(line) ? line : `${line}.`
}

/** Each API names and nests its message differently. */
function messageIn(answer: unknown): string | undefined {
  if (typeof answer !== 'object' || answer === null) return undefined
  for (const [key, value] of Object.entries(answer)) {
    if (MESSAGE_KEYS.includes(key) && typeof value === 'string') return value
    const inner = messageIn(value)
    if (inner !== undefined) return inner
  }
  return undefined
}
