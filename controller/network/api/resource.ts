import type { Knex } from 'knex'
import type { Page } from '../../api/paging.js'
import type { Database } from '../../database/connection.js'
import { execute } from '../../database/query.js'
import { assignments, type Fragment, identifier, join, sql } from '../../database/sql.js'
import { inTransaction, isUniqueViolation, sqlState, type Transaction } from '../../database/transaction.js'
import type { Caller } from '../../identity/caller.js'
import { createQueues } from '../../process/in-turn.js'
import { InvalidPortRequest } from '../driver.js'
import { isAdmin } from '../visibility.js'
import type { ChangeableKind, Singular } from './kinds.js'
import type { Listing } from './listing.js'
import { conflict, invalidRequest, NeutronError, notAuthorized, notFound } from './neutron-error.js'
import { type Source, selectOne, selectPage } from './select.js'

/** An object as the API returns it. */
export type Item = { id: string; tags: string[] } & Record<string, unknown>

/** The operations of one kind of resource. All throw NeutronError. */
export type Resource = {
  list: (caller: Caller, listing: Listing) => Promise<Page<Item>>
  /** Null if it does not exist or the caller may not see it. */
  show: (caller: Caller, id: string) => Promise<Item | null>
  /** Creates all of them or none. */
  create: (caller: Caller, bodies: readonly unknown[]) => Promise<Item[]>
  remove: (target: Target) => Promise<void>
}

/** A resource whose objects can be changed after their creation, and have tags. */
export type ChangeableResource = Resource & {
  update: (target: Target, body: unknown) => Promise<Item>
  retag: (target: Target, change: (tags: readonly string[]) => string[]) => Promise<string[]>
}

/** The object that a request changes. */
export type Target = {
  caller: Caller
  id: string
  /** The revision number that it must have; null for any. */
  revision: number | null
}

/** What differs between the kinds of resource in Krater's own tables. */
type Table<Row> = {
  source: Source<Row>
  present: (row: Row, caller: Caller) => Item
  /** @returns the ID of the new object */
  create: (trx: Transaction, caller: Caller, body: unknown) => Promise<string>
  remove: (trx: Transaction, caller: Caller, id: string) => Promise<void>
}

type ChangeableTable<Row> = Table<Row> & {
  source: Source<Row> & { kind: ChangeableKind }
  update: (trx: Transaction, caller: Caller, id: string, body: unknown) => Promise<void>
}

/** The object as the change in this transaction leaves it. */
export const shown = async <Row>(
  trx: Transaction,
  { source, present }: Pick<Table<Row>, 'source' | 'present'>,
  caller: Caller,
  id: string,
): Promise<Item> => present((await selectOne(trx, source, caller, id))!, caller)

/** A resource in one of Krater's own tables. */
export const tableResource = <Row extends CommonRow>(database: Database, table: Table<Row>): Resource => ({
  list: async (caller, listing) => {
    const page = await selectPage(database, table.source, caller, listing)
    return { ...page, items: page.items.map(row => table.present(row, caller)) }
  },
  show: async (caller, id) => {
    const row = await selectOne(database, table.source, caller, id)
    return row && table.present(row, caller)
  },
  create: (caller, bodies) =>
    createEach(database, caller, bodies, async (trx, body) =>
      shown(trx, table, caller, await table.create(trx, caller, body)),
    ),
  remove: target => changeAt(database, table.source, target, trx => table.remove(trx, target.caller, target.id)),
})

/** A resource in one of Krater's own tables, whose objects can be changed. */
export const changeableResource = <Row extends CommonRow>(
  database: Database,
  table: ChangeableTable<Row>,
): ChangeableResource => ({
  ...tableResource(database, table),
  update: (target, body) =>
    changeAt(database, table.source, target, async trx => {
      await table.update(trx, target.caller, target.id, body)
      return shown(trx, table, target.caller, target.id)
    }),
  retag: (target, change) => changeAt(database, table.source, target, trx => retag(trx, table.source, target, change)),
})

/** Runs a change in a transaction, at the revision that its author has seen. @throws NeutronError 412 */
export const changeAt = <Result>(
  database: Database,
  source: Source<CommonRow>,
  target: Target,
  change: (trx: Transaction) => Promise<Result>,
): Promise<Result> =>
  inOneGo(database, async trx => {
    await requireRevision(trx, source, target)
    return change(trx)
  })

/**
 * Runs a change in a transaction. If it crosses another request, which removes what this one refers to or makes what it
 * makes, it runs again and sees what the other did.
 * @throws NeutronError 409 if it crosses another one once more
 */
async function inOneGo<Result>(database: Database, change: (trx: Transaction) => Promise<Result>): Promise<Result> {
  try {
    return await inTransaction(database, change)
  } catch (error) {
    if (!isCrossed(error)) throw error
  }
  return inTransaction(database, change).catch(error => {
    if (!isCrossed(error)) throw error
    throw conflict('HTTPConflict', 'Other requests change the same objects at the same time. Try again.')
  })
}

const isCrossed = (error: unknown): boolean =>
  isUniqueViolation(error) || sqlState(error) === FOREIGN_KEY_VIOLATION || error instanceof InvalidPortRequest

/** Locks the row, so that the revision cannot change before the operation. @throws NeutronError 412 */
async function requireRevision(trx: Knex, source: Source<CommonRow>, { caller, id, revision }: Target): Promise<void> {
  if (revision === null) return
  const row = await selectOne(trx, source, caller, id, true)
  if (row !== null) checkRevision(revision, row.revision_number)
}

/** @throws NeutronError 412 */
export function checkRevision(expected: number | null, current: number): void {
  if (expected === null || expected === current) return
  throw new NeutronError(
    412,
    'RevisionNumberConstraintFailed',
    `Constrained to ${expected}, but current revision is ${current}`,
  )
}

export const FOREIGN_KEY_VIOLATION = '23503'

const inTurn = createQueues()

/**
 * Creates all objects of one request, or none. Requests of one project would wait for each other at its quota row, each
 * holding a database connection that others need. So within a process they queue before they take a connection.
 */
function createEach(
  database: Database,
  caller: Caller,
  bodies: readonly unknown[],
  create: (trx: Transaction, body: unknown) => Promise<Item>,
): Promise<Item[]> {
  return inTurn(caller.project?.id ?? '', () =>
    inOneGo(database, async trx => {
      const made: Item[] = []
      for (const body of bodies) made.push(await create(trx, body))
      return made
    }),
  )
}

/** Writing requires the role member, or admin, which implies it. Readers may only read. @throws NeutronError 403 */
export function requireWriter(caller: Caller, rule: string): void {
  if (!isAdmin(caller) && !caller.roles.includes('member')) throw notAuthorized(rule)
}

/** The project of a new object. Only administrators may name another project than their own. */
export function ownerOf(caller: Caller, body: { project_id?: string; tenant_id?: string }, rule: string): string {
  if (body.project_id !== undefined && body.tenant_id !== undefined && body.project_id !== body.tenant_id) {
    throw invalidRequest("'project_id' and 'tenant_id' do not match")
  }
  const owner = body.project_id ?? body.tenant_id ?? caller.project?.id
  if (owner === undefined) throw invalidRequest('The token is not scoped to a project: project_id must be specified')
  if (owner !== caller.project?.id && !isAdmin(caller)) throw notAuthorized(rule)
  return owner
}

export const owns = (caller: Caller, row: { project_id: string }): boolean =>
  isAdmin(caller) || row.project_id === caller.project?.id

/** Locks the row for a change. @throws NeutronError 404 if the caller may not see it, 403 if it is another project's */
export async function lockOwned<Row extends { project_id: string }>(
  trx: Knex,
  source: Source<Row>,
  caller: Caller,
  id: string,
  rule: string,
): Promise<Row> {
  const row = await selectOne(trx, source, caller, id, true)
  if (row === null) throw notFound(source.kind, id)
  requireWriter(caller, rule)
  if (!owns(caller, row)) throw notAuthorized(rule)
  return row
}

/** What every change of a row updates. */
export const CHANGED = { updated_at: sql`now()`, revision_number: sql`revision_number + 1` } as const

export const MAX_TAGS = 50

async function retag(
  trx: Knex,
  source: Source<CommonRow>,
  { caller, id }: Target,
  change: (tags: readonly string[]) => string[],
): Promise<string[]> {
  const row = await lockOwned(trx, source, caller, id, `update_${source.kind}s_tags`)
  const tags = [...new Set(change(row.tags))].sort()
  if (tags.length > MAX_TAGS) throw invalidRequest(`${tags.length} tags given; the maximum is ${MAX_TAGS}`)
  await execute(trx, sql`UPDATE ${identifier(source.table)} SET ${assignments({ tags, ...CHANGED })} WHERE id = ${id}`)
  return tags
}

/** The columns all resources share. */
export type CommonRow = {
  id: string
  project_id: string
  name: string
  description: string
  tags: string[]
  created_at: Date
  updated_at: Date
  revision_number: number
}

const timeOf = (date: Date) => `${date.toISOString().slice(0, 19)}Z`

export const presentCommon = (row: CommonRow) => ({
  id: row.id,
  name: row.name,
  description: row.description,
  project_id: row.project_id,
  tenant_id: row.project_id,
  tags: row.tags,
  created_at: timeOf(row.created_at),
  updated_at: timeOf(row.updated_at),
  revision_number: row.revision_number,
})

/** For kinds of objects that have no name. */
export const presentNameless = (row: CommonRow) => {
  const { name: _none, ...rest } = presentCommon(row)
  return rest
}

const COMMON = ['id', 'name', 'project_id', 'description', 'tags', 'created_at', 'updated_at', 'revision_number']

/** What objects have whose table lacks the column. */
const ABSENT = { name: sql`'' AS name`, tags: sql`'{}'::text[] AS tags` } as const

/** CommonRow's columns, qualified by the alias. @param absent the columns that its table lacks */
export function commonColumns(alias: Singular, absent: readonly (keyof typeof ABSENT)[] = []): Fragment {
  const present = COMMON.filter(column => !absent.some(name => name === column))
  return join([...present.map(column => identifier(alias, column)), ...absent.map(name => ABSENT[name])])
}

export const namelessFilters = (alias: Singular): Source['columns'] => ({
  id: { sql: identifier(alias, 'id'), kind: 'uuid' },
  description: { sql: identifier(alias, 'description'), kind: 'text' },
  project_id: { sql: identifier(alias, 'project_id'), kind: 'text' },
  revision_number: { sql: identifier(alias, 'revision_number'), kind: 'integer' },
})

export const commonFilters = (alias: Singular): Source['columns'] => ({
  name: { sql: identifier(alias, 'name'), kind: 'text' },
  ...namelessFilters(alias),
})
