import type { Knex } from 'knex'
import type { Database } from '../database/connection.js'
import { execute, many, maybeOne } from '../database/query.js'
import { identifier, insertion, json, sql } from '../database/sql.js'
import { inTransaction } from '../database/transaction.js'
import { hashPassword } from './login/passwords.js'
import { newId } from './resources/collection.js'

type ServiceType = 'identity' | 'load-balancer' | 'key-manager' | 'network'

export type BootstrapOptions = {
  region: string
  /** Passwords of users that this call creates. Existing users keep theirs. */
  adminPassword: string
  /** identity.password_hash_rounds */
  passwordHashRounds: number
  servicePasswords: { barbican: string; octavia: string }
  /** Creates a project and a user `demo`, once: if an operator removes them, they are not created again. */
  demoPassword?: string
  /** Base URLs for the catalogue. Identity's gets /v3 appended if it is missing. */
  endpoints: Record<ServiceType, string>
}

export type Bootstrapped = {
  /** Project IDs. `demo` is null if there is none. */
  projects: { admin: string; service: string; demo: string | null }
}

const SERVICE_NAMES: Readonly<Record<ServiceType, string>> = {
  identity: 'keystone',
  'load-balancer': 'octavia',
  'key-manager': 'barbican',
  network: 'neutron',
}

/** Roles that Keystone's and Krater's policies rely on. Immutable, so that they cannot be deleted by accident. */
const IMMUTABLE_ROLES = ['admin', 'manager', 'member', 'reader', 'service'] as const

/** Other roles in the services' policies. */
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
 * Creates what an empty identity service needs before anyone can log in: the default domain, roles, the administrator,
 * the services' users and the catalogue. May run at every start and in several processes at once: it adds what is
 * missing, updates changed endpoint URLs, and leaves operators' other changes alone.
 */
export async function bootstrapIdentity(database: Database, options: BootstrapOptions): Promise<Bootstrapped> {
  const hashOf = (password: string) => () => hashPassword(password, options.passwordHashRounds)
  return inTransaction(database, async trx => {
    await execute(trx, sql`SELECT pg_advisory_xact_lock(hashtext('krater identity bootstrap'))`)
    await ensureRows(trx, 'domain', [{ id: 'default', name: 'Default', description: 'The default domain' }])
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
    if (demoPassword !== undefined && (await isFirstTime(trx, 'demo'))) {
      const demo = await ensureProject(trx, 'demo', 'A project to try things in')
      await ensureUser(trx, 'demo', hashOf(demoPassword), user =>
        ensureGrants(trx, user, demo, [roles.member, roles['load-balancer_member'], roles.creator]),
      )
      await execute(
        trx,
        sql`UPDATE local_user SET default_project_id = ${demo}
             WHERE domain_id = 'default' AND name = 'demo' AND default_project_id IS NULL`,
      )
    }
    await ensureCatalog(trx, options)
    const demo = await findByName(trx, 'project', 'demo')
    return { projects: { admin, service, demo } }
  })
}

async function ensureRoles(trx: Knex): Promise<Record<RoleName, string>> {
  const immutable = json({ immutable: true })
  const roles = [
    ...IMMUTABLE_ROLES.map(name => ({ id: newId(), name, options: immutable })),
    ...OPTIONAL_ROLES.map(name => ({ id: newId(), name, options: json({}) })),
  ]
  const isFirst = await isFirstTime(trx, 'roles')
  await ensureRows(trx, 'role', roles)
  const rows = await many(trx, sql<{ name: RoleName; id: string }>`SELECT name, id FROM role WHERE domain_id IS NULL`)
  const ids = Object.fromEntries(rows.map(role => [role.name, role.id])) as Record<RoleName, string>
  if (isFirst) {
    const implications = IMPLICATIONS.map(([prior, implied]) => ({
      prior_role_id: ids[prior],
      implied_role_id: ids[implied],
    }))
    await ensureRows(trx, 'implied_role', implications)
  }
  return ids
}

async function ensureProject(trx: Knex, name: string, description: string): Promise<string> {
  await execute(
    trx,
    sql`INSERT INTO project (id, domain_id, name, description) VALUES (${newId()}, 'default', ${name}, ${description})
        ON CONFLICT (domain_id, name) DO NOTHING`,
  )
  const id = await findByName(trx, 'project', name)
  if (id === null) throw new Error(`Project ${name} was not created`)
  return id
}

/** The ID of the default domain's user or project with this name, or null. */
async function findByName(trx: Knex, table: 'project' | 'local_user', name: string): Promise<string | null> {
  const row = await maybeOne(
    trx,
    sql<{ id: string }>`SELECT id FROM ${identifier(table)} WHERE domain_id = 'default' AND name = ${name}`,
  )
  return row?.id ?? null
}

/** Inserts rows and keeps existing ones unchanged. */
async function ensureRows(trx: Knex, table: string, rows: Parameters<typeof insertion>[0]): Promise<void> {
  await execute(trx, sql`INSERT INTO ${identifier(table)} ${insertion(rows)} ON CONFLICT DO NOTHING`)
}

/** @param grant assigns the user's roles, also to an existing user: without them the services cannot work */
async function ensureUser(
  trx: Knex,
  name: string,
  hash: () => Promise<string>,
  grant: (userId: string) => Promise<void>,
): Promise<void> {
  const existing = await findByName(trx, 'local_user', name)
  const id = existing ?? newId()
  if (existing === null) {
    const user = { id, domain_id: 'default', name, password_hash: await hash() }
    await execute(trx, sql`INSERT INTO local_user ${insertion([user])}`)
  }
  await grant(id)
}

/** @param projectId null means the system */
async function ensureGrants(
  trx: Knex,
  userId: string,
  projectId: string | null,
  roleIds: readonly string[],
): Promise<void> {
  const grants = roleIds.map(role_id => ({ role_id, user_id: userId, project_id: projectId }))
  await ensureRows(trx, 'assignment', grants)
}

async function ensureCatalog(trx: Knex, { region, endpoints }: BootstrapOptions): Promise<void> {
  await ensureRows(trx, 'region', [{ id: region }])
  for (const [type, name] of Object.entries(SERVICE_NAMES) as [ServiceType, string][]) {
    const ofType = sql<{ id: string }>`SELECT id FROM service WHERE type = ${type} ORDER BY id LIMIT 1`
    const service = await maybeOne(trx, ofType)
    const service_id = service?.id ?? newId()
    if (service === undefined)
      await execute(trx, sql`INSERT INTO service ${insertion([{ id: service_id, type, name }])}`)
    const base = endpoints[type].replace(/\/+$/, '')
    const url = type === 'identity' && !base.endsWith('/v3') ? `${base}/v3` : base
    for (const interfaceName of ['public', 'internal', 'admin']) {
      const columns = { service_id, region_id: region, interface: interfaceName }
      const existing = await maybeOne(
        trx,
        sql<{ id: string; url: string }>`
          SELECT id, url FROM endpoint
           WHERE service_id = ${service_id} AND region_id = ${region} AND interface = ${interfaceName} LIMIT 1`,
      )
      if (existing === undefined) {
        await execute(trx, sql`INSERT INTO endpoint ${insertion([{ id: newId(), ...columns, url }])}`)
      } else if (existing.url !== url) {
        await execute(trx, sql`UPDATE endpoint SET url = ${url} WHERE id = ${existing.id}`)
      }
    }
  }
}

/** True only the first time for each name. */
async function isFirstTime(trx: Knex, what: string): Promise<boolean> {
  return (await execute(trx, sql`INSERT INTO made_once (what) VALUES (${what}) ON CONFLICT DO NOTHING`)) > 0
}
