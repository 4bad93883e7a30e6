import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parse, YAMLParseError } from 'yaml'
import * as z from 'zod'
import type { TransportSecurity } from '../http/exchange.js'
import { readPem } from '../options/pem-file.js'
import { OperatorError } from './operator-error.js'

const KEYS = [
  'auth_url',
  'token',
  'username',
  'user_id',
  'user_domain_name',
  'user_domain_id',
  'password',
  'project_name',
  'project_id',
  'project_domain_name',
  'project_domain_id',
  'application_credential_id',
  'application_credential_secret',
] as const

/** The keys of `auth` in clouds.yaml; the variables of an openrc file are `OS_` and the same in upper case. */
export type Credentials = Partial<Record<(typeof KEYS)[number], string>> & { auth_url: string }

const authSchema = z.object(Object.fromEntries(KEYS.map(key => [key, z.coerce.string().optional()])))
const cloudSchema = z.object({ auth: authSchema, cacert: z.string().optional(), verify: z.boolean().optional() })
const cloudsSchema = z.object({ clouds: z.record(z.string(), z.unknown()) })

/** The caller's credentials, and which certificates of the APIs to accept. */
type Found = { credentials: Credentials; security: TransportSecurity }

type Verification = { cacert?: string | undefined; verify?: boolean | undefined }

type Environment = Readonly<Record<string, string | undefined>>

/**
 * The caller's credentials, as the openstack command finds them: the variables of an openrc file, or the cloud OS_CLOUD
 * of a clouds.yaml. Without either, the demo user of the instance in the state directory.
 * @throws OperatorError
 */
export function findCredentials(directory: string, environment: Environment): Found {
  const cloud = environment.OS_CLOUD || undefined
  const { OS_AUTH_URL: url } = environment
  if (cloud === undefined && url !== undefined) {
    return { credentials: fromVariables(environment), security: securityOf({ cacert: environment.OS_CACERT }) }
  }
  const files = [
    ...(environment.OS_CLIENT_CONFIG_FILE === undefined ? [] : [environment.OS_CLIENT_CONFIG_FILE]),
    'clouds.yaml',
    join(environment.HOME ?? '/', '.config/openstack/clouds.yaml'),
    '/etc/openstack/clouds.yaml',
    join(directory, 'clouds.yaml'),
  ]
  const wanted = cloud === undefined ? files.slice(-1) : files
  for (const file of wanted.filter(path => existsSync(path))) {
    const found = credentialsIn(file, cloud ?? 'krater')
    if (found === undefined) continue
    const { auth, cacert = environment.OS_CACERT, verify } = found
    const credentials = complete(auth, `The cloud ${cloud ?? 'krater'} in ${file}`)
    return { credentials, security: securityOf({ cacert, verify }) }
  }
  throw new OperatorError(
    cloud === undefined
      ? `No credentials: source an openrc file, set OS_CLOUD, or start Krater (no ${join(directory, 'clouds.yaml')}).`
      : `No clouds.yaml has the cloud ${cloud}.`,
  )
}

function fromVariables(environment: Environment): Credentials {
  const given = KEYS.map(key => [key, environment[`OS_${key.toUpperCase()}`]] as const)
  return complete(
    Object.fromEntries(given.filter(([, value]) => value !== undefined && value !== '')),
    'The environment',
  )
}

/** @returns undefined if the file has no cloud of this name */
function credentialsIn(file: string, name: string): z.output<typeof cloudSchema> | undefined {
  const found = cloudIn(file, name)
  if (found === undefined) return undefined
  const cloud = cloudSchema.safeParse(found)
  if (!cloud.success) throw new OperatorError(`The cloud ${name} in ${file} is wrong: ${z.prettifyError(cloud.error)}`)
  return cloud.data
}

/**
 * What to trust, as the openstack command does.
 * @param cacert PEM file with the CAs; the public ones without it
 * @param verify false accepts any certificate
 * @throws ConfigurationError when the file cannot be used
 */
export function securityOf({ cacert = '', verify = true }: Verification): TransportSecurity {
  if (cacert === '') return { insecure: !verify }
  return { insecure: !verify, ca: readPem(cacert, 'cacert in clouds.yaml, or OS_CACERT') }
}

/**
 * A cloud of a clouds.yaml, whose other clouds may be of any kind; undefined if it has none of this name.
 * @throws OperatorError when the file is no clouds.yaml
 */
export function cloudIn(file: string, name: string): unknown {
  const read = cloudsSchema.safeParse(parseYaml(file))
  if (!read.success) throw new OperatorError(`${file} is not a clouds.yaml: ${z.prettifyError(read.error)}`)
  const { clouds } = read.data
  return Object.hasOwn(clouds, name) ? clouds[name] : undefined
}

/** @throws OperatorError without the text around the fault, which may be a password */
function parseYaml(file: string): unknown {
  try {
    return parse(readFileSync(file, 'utf8'))
  } catch (error) {
    if (!(error instanceof YAMLParseError)) throw error
    const [place] = error.linePos ?? []
    throw new OperatorError(
      `${file} is not valid YAML${place === undefined ? '' : ` in line ${place.line}`}. Correct it; \`krater up\` writes its own again once it is removed.`,
    )
  }
}

function complete(given: Partial<Credentials>, where: string): Credentials {
  const { auth_url: url } = given
  if (url === undefined) throw new OperatorError(`${where} has no auth_url.`)
  return { ...given, auth_url: /\/v3\/?$/.test(url) ? url.replace(/\/$/, '') : `${url.replace(/\/$/, '')}/v3` }
}

/** The body of the request for a token. Pure. */
export function tokenRequest(given: Credentials): { auth: { identity: object; scope?: object } } {
  const domain = (kind: 'user' | 'project') => {
    const id = given[`${kind}_domain_id`]
    return id === undefined ? { name: given[`${kind}_domain_name`] ?? 'Default' } : { id }
  }
  const { application_credential_id: id, application_credential_secret: secret, token, password } = given
  if (id !== undefined) {
    return { auth: { identity: { methods: ['application_credential'], application_credential: { id, secret } } } }
  }
  const project =
    given.project_id === undefined ? { name: given.project_name, domain: domain('project') } : { id: given.project_id }
  const user = given.user_id === undefined ? { name: given.username, domain: domain('user') } : { id: given.user_id }
  const identity =
    token === undefined
      ? { methods: ['password'], password: { user: { ...user, password } } }
      : { methods: ['token'], token: { id: token } }
  return { auth: { identity, scope: { project } } }
}
