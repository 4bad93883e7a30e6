import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import {
  commandLine,
  type Documented,
  documentedOperations,
  runCurl,
  type Shell,
} from '../support/clients/documented-operations.js'
import { openstackSession } from '../support/clients/openstack-session.js'
import { apiUrls, type Krater, NOOP_DRIVERS, startKrater, until } from '../support/worlds/krater.js'

/** Creations in their order -> the variable that gets the new id. */
const CREATIONS: Readonly<Record<string, string>> = {
  'POST /v3/projects': 'PROJECT_ID',
  'POST /v3/users': 'USER_ID',
  'POST /v3/domains': 'DOMAIN_ID',
  'POST /v3/roles': 'ROLE_ID',
  'POST /v3/groups': 'GROUP_ID',
  'POST /v3/services': 'SERVICE_ID',
  'POST /v3/endpoints': 'ENDPOINT_ID',
  'POST /v3/regions': 'REGION_ID',
  'POST /v3/credentials': 'CREDENTIAL_ID',
  'POST /v3/users/{user_id}/application_credentials': 'APPLICATION_CREDENTIAL_ID',
  'POST /v2.0/networks': 'NETWORK_ID',
  'POST /v2.0/subnets': 'SUBNET_ID',
  'POST /v2.0/ports': 'PORT_ID',
  'POST /v2.0/routers': 'ROUTER_ID',
  'POST /v2.0/floatingips': 'FLOATINGIP_ID',
  'POST /v2.0/security-groups': 'SECURITY_GROUP_ID',
  'POST /v2.0/security-group-rules': 'SECURITY_GROUP_RULE_ID',
  'POST /v1/secrets': 'SECRET_ID',
  'POST /v1/containers': 'CONTAINER_ID',
  'POST /v1/orders': 'ORDER_ID',
  'POST /v1/transport_keys': 'TRANSPORT_KEY_ID',
  'POST /v1/acme-accounts': 'ACME_ACCOUNT_ID',
  'POST /v1/cas': 'CA_ID',
  'POST /v2/lbaas/flavorprofiles': 'FLAVORPROFILE_ID',
  'POST /v2/lbaas/flavors': 'FLAVOR_ID',
  'POST /v2/lbaas/availabilityzoneprofiles': 'AVAILABILITYZONEPROFILE_ID',
  'POST /v2/lbaas/availabilityzones': '',
  'POST /v2/lbaas/loadbalancers': 'LOADBALANCER_ID',
  'POST /v2/lbaas/listeners': 'LISTENER_ID',
  'POST /v2/lbaas/pools': 'POOL_ID',
  'POST /v2/lbaas/pools/{pool}/members': 'MEMBER_ID',
  'POST /v2/lbaas/healthmonitors': 'HEALTHMONITOR_ID',
  'POST /v2/lbaas/l7policies': 'L7POLICY_ID',
  'POST /v2/lbaas/l7policies/{policy}/rules': 'RULE_ID',
}

/** After all reads: these take away what they show. */
const TAKING_AWAY = ['POST /v1/cas/unset-global-preferred', 'POST /v1/cas/{id}/remove-from-project']

const UNKNOWN = '00000000-0000-4000-8000-000000000000'

/** Only an amphora in ERROR can be deleted, and only one that sends heartbeats has statistics. Noop amphorae do neither. */
const OF_REAL_AMPHORAE = ['DELETE /v2/octavia/amphorae/{id}', 'GET /v2/octavia/amphorae/{id}/stats']

/** Operations whose example cannot succeed here -> the status that they get. */
const REFUSED: readonly (readonly [RegExp, number])[] = [
  // As with Barbican, no answer contains the id of a consumer.
  [/\{consumer\}$/, 404],
  [/^DELETE \/v2\/octavia\/amphorae\/\{id\}$/, 409],
  [/^GET \/v2\/octavia\/amphorae\/\{id\}\/stats$/, 404],
  // It is less than a minute old, and has no former version.
  [/^POST \/v1\/certificates\/\{id\}\/renew$/, 429],
  [/^POST \/v1\/certificates\/\{id\}\/rollback$/, 409],
  // Each service has quotas of its own instead.
  [/^POST \/v3\/(registered_)?limits$/, 501],
  [/^\w+ \/v3\/(registered_)?limits\/\{id\}$/, 404],
  // The noop network driver keeps no tags.
  [/^(GET|DELETE) \/v2\.0\/[\w-]+\/\{id\}\/tags\/\{tag\}$/, 404],
]

/** The order in which all examples can run: creations, other additions, reads, changes, deletions. */
function inOrder(operations: readonly Documented[]): Documented[] {
  const creations = Object.keys(CREATIONS)
  const rank = ({ name }: Documented): number => {
    const [method = '', path = ''] = name.split(' ')
    const creation = creations.indexOf(name)
    if (name.endsWith('/password')) return 9000
    if (TAKING_AWAY.includes(name)) return 4500
    if (creation >= 0) return creation
    if (method !== 'DELETE') return { POST: 1000, PUT: 2000, GET: 3000, HEAD: 3000 }[method] ?? 4000
    // What is deeper in the tree, or was created later, is deleted first; projects and users last.
    return (
      (path.startsWith('/v3/') ? 8000 : 7000) -
      path.split('/').length * 100 -
      creations.indexOf(`POST ${path.replace(/\/\{\w+\}$/, '')}`)
    )
  }
  return operations.toSorted((one, other) => rank(one) - rank(other))
}

/** The id in an answer to a creation: of the object, or at the end of its URL. */
function idIn(answer: string): string {
  const patterns = [/"id": ?"([^"]+)"/, /(?:_ref| href)": ?"[^"]*\/([^"/]+)"/, /"(?:region|key_id)": ?"([^"]+)"/]
  const [, id = ''] = patterns.map(pattern => pattern.exec(answer)).find(found => found !== null) ?? []
  return id
}

/** The variables of the examples, for the administrator. */
async function shellOf(krater: Krater): Promise<Shell> {
  const openrc = readFileSync(join(krater.directory, 'admin-openrc'), 'utf8')
  const account = [...openrc.matchAll(/^export (\w+)='(.*)'$/gm)].map(([, name, value]) => [name, value])
  const token = (await krater.openstack(['token', 'issue', '-f', 'json'], 'krater-admin')) as Record<string, string>
  const { id: TOKEN = '', user_id: OWN_ID = '' } = token
  return { ...Object.fromEntries(account), ...apiUrls(krater.environment), TOKEN, OWN_ID, TRANSPORT_KEY: 'wrapped' }
}

async function ask(shell: Shell, variable: string, path: string, body?: unknown): Promise<string> {
  const headers = { 'X-Auth-Token': shell.TOKEN ?? '', 'Content-Type': 'application/json' }
  const sent = body === undefined ? { headers } : { headers, method: 'POST', body: JSON.stringify(body) }
  return (await fetch(`${shell[variable]}${path}`, sent)).text()
}

/** What an operation needs and no example before it has made. */
async function extrasFor({ name }: Documented, shell: Shell): Promise<Shell> {
  if (/application_credentials/.test(name)) return { USER_ID: shell.OWN_ID ?? '' }
  if (/\/implies/.test(name)) {
    const reader = await ask(shell, 'IDENTITY_URL', '/v3/roles?name=reader')
    return { PRIOR_ID: shell.ROLE_ID ?? '', IMPLIED_ID: idIn(reader) }
  }
  if (name === 'PUT /v1/secrets/{id}')
    return { SECRET_ID: idIn(await ask(shell, 'KEY_MANAGER_URL', '/v1/secrets', {})) }
  if (name === 'POST /v1/cas' || name.includes('global-preferred')) return { CA_ID: await rootAuthority(shell) }
  if (/\/v1\/certificates\/\{id\}/.test(name)) return { CONTAINER_ID: await certificate(shell) }
  if (/octavia\/amphorae\/\{id\}/.test(name)) return { AMPHORA_ID: await amphora(shell, name.startsWith('DELETE')) }
  return {}
}

/** The container of a certificate that an order issued. */
async function certificate(shell: Shell): Promise<string> {
  const list = async () =>
    JSON.parse(await ask(shell, 'KEY_MANAGER_URL', '/v1/certificates')).certificates as { container_ref: string }[]
  if ((await list()).length === 0) {
    const meta = { ca_id: await rootAuthority(shell), subject_dn: 'CN=www.example.com' }
    await ask(shell, 'KEY_MANAGER_URL', '/v1/orders', { type: 'certificate', meta })
  }
  await until('a certificate is issued', async () => (await list()).length > 0)
  return (await list())[0]?.container_ref.split('/').at(-1) ?? ''
}

async function rootAuthority(shell: Shell): Promise<string> {
  const [, id = ''] = /\/cas\/([^"/]+)"/.exec(await ask(shell, 'KEY_MANAGER_URL', '/v1/cas/all')) ?? []
  return id
}

/** A user with a password to change, and a token of that user. */
async function newUser(shell: Shell): Promise<Shell> {
  const password = 'the-first-one'
  const USER_ID = idIn(await ask(shell, 'IDENTITY_URL', '/v3/users', { user: { name: 'bob', password } }))
  const identity = { methods: ['password'], password: { user: { id: USER_ID, password } } }
  const login = await fetch(`${shell.IDENTITY_URL}/v3/auth/tokens`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ auth: { identity } }),
  })
  return { USER_ID, OS_PASSWORD: password, TOKEN: login.headers.get('X-Subject-Token') ?? '' }
}

/** An amphora of a load balancer, or one that waits for the next. */
async function amphora(shell: Shell, isSpare: boolean): Promise<string> {
  type Objects = { id: string; status: string; provisioning_status: string }[]
  let id: string | undefined
  await until(`an amphora ${isSpare ? 'waits' : 'serves'}`, async () => {
    // In this order: an amphora of before may be replaced until its load balancer is ACTIVE.
    const { loadbalancers } = JSON.parse(await ask(shell, 'LOAD_BALANCER_URL', '/v2/lbaas/loadbalancers'))
    const { amphorae } = JSON.parse(await ask(shell, 'LOAD_BALANCER_URL', '/v2/octavia/amphorae'))
    id = (amphorae as Objects).find(({ status }) => status === (isSpare ? 'READY' : 'ALLOCATED'))?.id
    return id !== undefined && (loadbalancers as Objects).every(one => one.provisioning_status === 'ACTIVE')
  })
  return id ?? ''
}

const ABOUT_THE_API = /^GET \/(openapi\.json|docs|healthcheck)$/

t.test('the examples of the four APIs', async t => {
  t.setTimeout(1_100_000)
  const krater = await startKrater(t, NOOP_DRIVERS)
  const urls = Object.values(apiUrls(krater.environment))
  const all = (await Promise.all(urls.map(documentedOperations))).flat()
  const operations = inOrder(all.filter(({ name }) => !ABOUT_THE_API.test(name)))
  await t.test('with curl, run as printed, get the documented answers', t => runCurls(t, operations, krater))
  await t.test('with openstack, run as printed, succeed', t => runCommands(t, operations, krater))
})

async function runCurls(t: Test, operations: readonly Documented[], krater: Krater): Promise<void> {
  const known = await shellOf(krater)
  for (const operation of operations) {
    const { name, curl, status } = operation
    // Unknown ids of networking objects that this service never has.
    const unset = Object.fromEntries([...curl.matchAll(/\$(\w+_ID)/g)].map(([, variable]) => [variable, UNKNOWN]))
    const extras = /password$/.test(name) ? await newUser(known) : await extrasFor(operation, known)
    const shell = { ...unset, ...known, ...extras }
    const answer = await runCurl(curl, shell)
    const expected = REFUSED.find(([pattern]) => pattern.test(name))?.[1] ?? status
    t.equal(answer.status, expected, `${name} ${answer.status === expected ? '' : answer.body.slice(0, 300)}`)
    const variable = CREATIONS[name]
    if (variable !== undefined) known[variable] = idIn(answer.body)
    const [, token] = /^X-Subject-Token: (\S+)/im.exec(answer.headers) ?? []
    if (token !== undefined && name.startsWith('POST')) known.OTHER_TOKEN = token
  }
}

async function runCommands(t: Test, operations: readonly Documented[], krater: Krater): Promise<void> {
  const { run } = openstackSession(t, krater, 'krater-admin')
  const known = await shellOf(krater)
  known.CA_ID = await rootAuthority(known)
  known.OTHER_TOKEN = idIn((await run('token issue -f json')).stdout)
  for (const operation of operations) {
    const { name, command } = operation
    if (command === undefined) continue
    const line = commandLine(command, { ...known, ...(await extrasFor(operation, known)) })
    const variable = CREATIONS[name]
    const { status, stdout, stderr } = await run(variable === undefined ? line : `${line} -f json`)
    const expected = OF_REAL_AMPHORAE.includes(name) ? 1 : 0
    t.equal(status, expected, `${line} ${status === expected ? '' : `${stderr}${stdout}`.slice(0, 400)}`)
    if (variable !== undefined) known[variable] = idIn(stdout)
  }
}
