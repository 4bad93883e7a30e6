import type { Knex } from 'knex'
import type { Database } from '../database/connection.js'
import { inTransaction } from '../database/transaction.js'
import { hashPassword } from './login/passwords.js'
import { newId } from './resources/collection.js'

type ServiceType = 'identity' | 'load-balancer' | 'key-manager' | 'network'

export type BootstrapOptions = {
  region: string
  /** The passwords count for users that this call makes; those of existing users stay as they are. */
  adminPassword: string
  /** identity.password_hash_rounds */
  passwordHashRounds: number
  servicePasswords: { barbican: string; octavia: string }
  /** Makes a project and a user `demo`, once: when an operator removes them, they stay away. */
  demoPassword?: string
  /** Base URLs for the catalogue; /v3 is added to that of identity when it is missing. */
  endpoints: Record<ServiceType, string>
}

export type Bootstrapped = {
  /** Project ids. `demo` is null when there is none. */
  projects: { admin: string; service: string; demo: string | null }
}

const SERVICE_NAMES: Readonly<Record<ServiceType, string>> = {
  identity: 'keystone',
  'load-balancer': 'octavia',
  'key-manager': 'barbican',
  network: 'neutron',
}

/** Roles that Keystone's own policies and ours rest on: nobody may remove them by accident. */
const IMMUTABLE_ROLES = ['admin', 'manager', 'member', 'reader', 'service'] as const

/** Roles that the services' policies ask for. */
const OPTIONAL_ROLES = [
  'creator',
  'observer',
  'audit',
  'key-manager:service-admin',
  'load-balancer_admin',
  'load-balancer_member',
  'load-balancer_observer',
  'load-balancer_global_observer',
  'load-balancer_quota_admin',
] as const

type RoleName = (typeof IMMUTABLE_ROLES)[number] | (typeof OPTIONAL_ROLES)[number]

const IMPLICATIONS: readonly (readonly [RoleName, RoleName])[] = [
  ['admin', 'manager'],
  ['manager', 'member'],
  ['member', 'reader'],
]

/**
 * Makes what an empty identity service needs before anybody can log in: the default domain, roles, the administrator, the services' users
 * and the catalogue. May run at every start and in several processes at once: it adds what is missing and brings changed
 * endpoint URLs up to date, and leaves everything else as operators have made it.
 */
export async function bootstrapIdentity(database: Database, options: BootstrapOptions): Promise<Bootstrapped> {
  const hashOf = (password: string) => () => hashPassword(password, options.passwordHashRounds)
  return inTransaction(database, async trx => {
    await trx.raw('SELECT pg_advisory_xact_lock(hashtext(?))', ['krater identity bootstrap'])
    await trx('domain')
      .insert({ id: 'default', name: 'Default', description: 'The default domain' })
      .onConflict()
      .ignore()
    const roles = await ensureRoles(trx)
    const admin = await ensureProject(trx, 'admin', 'Bootstrap project for initializing the cloud.')
    const service = await ensureProject(trx, 'service', 'Users of the services')
    await ensureUser(trx, 'admin', hashOf(options.adminPassword), async user => {
      await ensureGrants(trx, user, admin, [roles.admin])
      await ensureGrants(trx, user, null, [roles.admin])
    })
    for (const name of ['barbican', 'octavia'] as const) {
      await ensureUser(trx, name, hashOf(options.servicePasswords[name]), user =>
        ensureGrants(trx, user, service, [roles.admin, roles.service]),
      )
    }
    const { demoPassword } = options
    if (demoPassword !== undefined && (await firstTime(trx, 'demo'))) {
      const demo = await ensureProject(trx, 'demo', 'A project to try things in')
      await ensureUser(trx, 'demo', hashOf(demoPassword), user =>
        ensureGrants(trx, user, demo, [roles.member, roles['load-balancer_member'], roles.creator]),
      )
      await trx('local_user')
        .where({ domain_id: 'default', name: 'demo', default_project_id: null })
        .update({ default_project_id: demo })
    }
    await ensureCatalog(trx, options)
    const demo = await trx('project').where({ domain_id: 'default', name: 'demo' }).first('id')
    return { projects: { admin, service, demo: demo?.id ?? null } }
  })
}

async function ensureRoles(trx: Knex): Promise<Record<RoleName, string>> {
  const immutable = { immutable: true }
  const wanted = [
    ...IMMUTABLE_ROLES.map(name => ({ id: newId(), name, options: immutable })),
    ...OPTIONAL_ROLES.map(name => ({ id: newId(), name, options: {} })),
  ]
  const isFirst = await firstTime(trx, 'roles')
  await trx('role').insert(wanted).onConflict('name').ignore()
  const rows: { name: RoleName; id: string }[] = await trx('role').select('name', 'id')
  const ids = Object.fromEntries(rows.map(role => [role.name, role.id])) as Record<RoleName, string>
  if (isFirst) {
    await trx('implied_role')
      .insert(IMPLICATIONS.map(([prior, implied]) => ({ prior_role_id: ids[prior], implied_role_id: ids[implied] })))
      .onConflict()
      .ignore()
  }
  return ids
}

async function ensureProject(trx: Knex, name: string, description: string): Promise<string> {
  await trx('project')
    .insert({ id: newId(), domain_id: 'default', name, description })
    .onConflict(['domain_id', 'name'])
    .ignore()
  const project = await trx('project').where({ domain_id: 'default', name }).first('id')
  return project.id
}

/** @param grant gives a user its roles, also one that stood already: without them the services cannot work */
async function ensureUser(
  trx: Knex,
  name: string,
  hash: () => Promise<string>,
  grant: (userId: string) => Promise<void>,
): Promise<void> {
  const existing = await trx('local_user').where({ domain_id: 'default', name }).first('id')
  const id = existing?.id ?? newId()
  if (existing === undefined) {
    await trx('local_user').insert({ id, domain_id: 'default', name, password_hash: await hash() })
  }
  await grant(id)
}

/** @param projectId null: on the system */
async function ensureGrants(
  trx: Knex,
  userId: string,
  projectId: string | null,
  roleIds: readonly string[],
): Promise<void> {
  await trx('assignment')
    .insert(roleIds.map(role_id => ({ role_id, user_id: userId, project_id: projectId })))
    .onConflict()
    .ignore()
}

async function ensureCatalog(trx: Knex, { region, endpoints }: BootstrapOptions): Promise<void> {
  await trx('region').insert({ id: region }).onConflict().ignore()
  for (const [type, name] of Object.entries(SERVICE_NAMES) as [ServiceType, string][]) {
    const existing = await trx('service').where({ type }).orderBy('id').first('id')
    const service_id = existing?.id ?? newId()
    if (existing === undefined) await trx('service').insert({ id: service_id, type, name })
    const base = endpoints[type].replace(/\/+$/, '')
    const url = type === 'identity' && !base.endsWith('/v3') ? `${base}/v3` : base
    for (const face of ['public', 'internal', 'admin']) {
      const place = { service_id, region_id: region, interface: face }
      const standing = await trx('endpoint').where(place).first('id', 'url')
      if (standing === undefined) await trx('endpoint').insert({ id: newId(), ...place, url })
      else if (standing.url !== url) await trx('endpoint').where({ id: standing.id }).update({ url })
    }
  }
}

/** True once for each name, whatever comes after. */
async function firstTime(trx: Knex, what: string): Promise<boolean> {
  const inserted = await trx('made_once').insert({ what }).onConflict().ignore().returning('what')
  return inserted.length > 0
}
