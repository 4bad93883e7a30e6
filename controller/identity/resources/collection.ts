import { randomUUID } from 'node:crypto'
import type { Knex } from 'knex'
import * as z from 'zod'
import { jsonAnswer, NO_CONTENT } from '../../api/answer.js'
import { formOf, objectOf, type Schema } from '../../api/schema.js'
import type { Database } from '../../database/connection.js'
import { execute, many, maybeOne, one } from '../../database/query.js'
import {
  and,
  assignments,
  boundColumns,
  type Fragment,
  identifier,
  identifiers,
  insertion,
  sql,
  unprepared,
} from '../../database/sql.js'
import { inTransaction, isUniqueViolation, sqlState } from '../../database/transaction.js'
import { ApiError, badRequest, conflict, forbidden, notFound } from '../../http/errors.js'
import {
  type IdentityCall,
  type IdentityRoute,
  listAnswer,
  listForm,
  oneForm,
  route,
  type Service,
} from '../dialect.js'
import { administrators, type Rule, readers } from '../policy.js'
import { lockRights } from '../tokens/revocation.js'
import { type Filters, filterConditions, filterParameters } from './filters.js'

export type Fields = Record<string, unknown>

/** A row of a resource's table. */
export type Row = Fields & { id: string; extra?: Fields; options?: Fields }

/**
 * Defines one kind of resource: its table, accepted attributes, shown attributes and the effects of changes.
 * `collectionRoutes` turns it into list, create, show, update and delete.
 */
export type Collection<Create extends z.ZodObject, Update extends z.ZodObject> = {
  singular: string
  plural: string
  table: string
  create: Create
  update: Update
  /** Query parameters that filter the list. Others are ignored. */
  filters: Filters
  /** A further condition on lists. */
  listed?: (call: IdentityCall) => Fragment
  /** The columns in answers. */
  shown: readonly string[]
  /** Other columns to read: input of `derive`, and secrets. */
  hidden?: readonly string[]
  /** Further attributes in answers. */
  derive?: (row: Row) => Fields
  allow?: Partial<Record<'list' | 'create' | 'show' | 'update' | 'delete', Rule>>
  /** Computes slow columns. Runs before the transaction, which may hold locks that others wait for. */
  compute?: (sent: z.output<Create> | z.output<Update>, service: Service, call: IdentityCall) => Promise<Fields>
  /** Checks references and maps the request's attributes to columns. `before` is null on create. */
  prepare?: (change: Change<z.output<Create> | z.output<Update>>) => Promise<Fields>
  /** Whether tokens may depend on this resource, so that changes exclude the issuing of tokens. */
  carriesRights?: boolean
  /** Revokes or refreshes tokens after an update. */
  updated?: (trx: Knex, before: Row, after: Row) => Promise<void>
  /** Runs before a deletion: throws to refuse it, or revokes tokens. */
  deleting?: (trx: Knex, row: Row) => Promise<void>
}

export type Change<Sent> = { trx: Knex; call: IdentityCall; sent: Sent; before: Row | null }

/** What reading a resource's rows requires. */
export type Stored = { singular: string; table: string; shown: readonly string[]; hidden?: readonly string[] }

/** 32 hexadecimal digits without dashes, like Keystone's IDs. */
export const newId = (): string => randomUUID().replaceAll('-', '')

/** Parses `{"<singular>": {...}}` and returns the inner object. */
export const bodyOf = <Schema extends z.ZodObject>(singular: string, schema: Schema) =>
  z.object({ [singular]: schema }).transform(body => body[singular] as z.output<Schema>)

export const collectionRoutes = <Create extends z.ZodObject, Update extends z.ZodObject>(
  collection: Collection<Create, Update>,
): IdentityRoute[] => [...listAndCreateRoutes(collection), ...itemRoutes(collection)]

function listAndCreateRoutes<Create extends z.ZodObject, Update extends z.ZodObject>(
  collection: Collection<Create, Update>,
): IdentityRoute[] {
  const { singular, plural, allow } = collection
  const path = `/v3/${plural}`
  const group = plural
  return [
    route({
      ...{ method: 'GET', path, right: allow?.list ?? readers, group, status: 200 },
      summary: `List ${plural}`,
      parameters: filterParameters(collection.filters, plural),
      get answer() {
        return listForm(plural, answerForm(collection))
      },
      handle: async ({ database }, call) => {
        const conditions = [...filterConditions(collection.filters, call), collection.listed?.(call) ?? sql`true`]
        const rows = await findRows(database, collection, and(conditions))
        return listAnswer(
          call,
          plural,
          rows.map(row => presentRow(collection, call, row)),
        )
      },
    }),
    route({
      ...{ method: 'POST', path, right: allow?.create ?? administrators, group, status: 201 },
      summary: `Create a ${singular}`,
      request: bodyOf(singular, collection.create),
      get answer() {
        return oneForm(singular, answerForm(collection))
      },
      handle: async (service, call) =>
        jsonAnswer(201, { [singular]: presentRow(collection, call, await createRow(collection, service, call)) }),
    }),
  ]
}

function itemRoutes<Create extends z.ZodObject, Update extends z.ZodObject>(
  collection: Collection<Create, Update>,
): IdentityRoute[] {
  const { singular, plural, allow } = collection
  const path = `/v3/${plural}/:id`
  const group = plural
  return [
    route({
      ...{ method: 'GET', path, right: allow?.show ?? readers, group, status: 200 },
      summary: `Show a ${singular}`,
      get answer() {
        return oneForm(singular, answerForm(collection))
      },
      handle: async ({ database }, call) => {
        const row = await findRow(database, collection, call.params.id!)
        return jsonAnswer(200, { [singular]: presentRow(collection, call, row) })
      },
    }),
    route({
      ...{ method: 'PATCH', path, right: allow?.update ?? administrators, group, status: 200 },
      summary: `Update a ${singular}; attributes not given stay unchanged`,
      request: bodyOf(singular, collection.update),
      get answer() {
        return oneForm(singular, answerForm(collection))
      },
      handle: async (service, call) =>
        jsonAnswer(200, { [singular]: presentRow(collection, call, await updateRow(collection, service, call)) }),
    }),
    route({
      ...{ method: 'DELETE', path, right: allow?.delete ?? administrators, group, status: 204 },
      summary: `Delete a ${singular}`,
      handle: async ({ database }, call) => {
        await deleteRow(collection, database, call.params.id!)
        return NO_CONTENT
      },
    }),
  ]
}

/** The form of an object in answers: the shown attributes, typed as in the create request, with its ID and links. */
function answerForm<Create extends z.ZodObject, Update extends z.ZodObject>(
  collection: Collection<Create, Update>,
): Schema {
  const sent: Readonly<Record<string, Schema>> = Object(formOf(collection.create).properties)
  const shown = collection.shown.filter(name => name !== 'id').map(name => [name, sent[name] ?? {}] as const)
  return objectOf({ id: { type: 'string' }, ...Object.fromEntries(shown), links: { type: 'object' } })
}

async function deleteRow<Create extends z.ZodObject, Update extends z.ZodObject>(
  collection: Collection<Create, Update>,
  database: Database,
  id: string,
): Promise<void> {
  await inTransaction(database, async trx => {
    if (collection.carriesRights) await lockRights(trx)
    const row = await findRow(trx, collection, id, 'lock')
    if (row.options?.immutable === true) {
      throw forbidden(`Unable to delete immutable ${collection.singular} resource: ${row.id}.`)
    }
    await collection.deleting?.(trx, row)
    await execute(trx, sql`DELETE FROM ${identifier(collection.table)} WHERE id = ${row.id}`)
  })
}

/** Creates a row from a request's body. @param fixed columns that come from elsewhere, such as an ID in the path */
export async function createRow<Create extends z.ZodObject, Update extends z.ZodObject>(
  collection: Collection<Create, Update>,
  service: Service,
  call: IdentityCall<z.output<Create>>,
  fixed: Fields = {},
): Promise<Row> {
  const sent = await call.body()
  const computed = await collection.compute?.(sent, service, call)
  return translateConflicts(collection, () =>
    inTransaction(service.database, async trx => {
      const columns = await toColumns(collection, { trx, call, sent, before: null }, collection.create)
      const values = insertion([boundColumns({ id: newId(), ...columns, ...computed, ...fixed })])
      return one(
        trx,
        sql<Row>`INSERT INTO ${identifier(collection.table)} ${values} RETURNING ${columnsOf(collection)}`,
      )
    }),
  )
}

async function updateRow<Create extends z.ZodObject, Update extends z.ZodObject>(
  collection: Collection<Create, Update>,
  service: Service,
  call: IdentityCall<z.output<Update>>,
): Promise<Row> {
  const sent = await call.body()
  const computed = await collection.compute?.(sent, service, call)
  return translateConflicts(collection, () =>
    inTransaction(service.database, async trx => {
      if (collection.carriesRights) await lockRights(trx)
      const before = await findRow(trx, collection, call.params.id!, 'lock')
      refuseImmutable(collection.singular, before, sent)
      for (const key of ['id', 'domain_id']) {
        if (sent[key] !== undefined && before[key] !== undefined && sent[key] !== before[key]) {
          throw badRequest(`The ${key} of a ${collection.singular} cannot be changed.`)
        }
      }
      const columns = { ...(await toColumns(collection, { trx, call, sent, before }, collection.update)), ...computed }
      if (Object.keys(columns).length === 0) return before
      const values = assignments(boundColumns(columns))
      const after = await one(
        trx,
        sql<Row>`UPDATE ${identifier(collection.table)} SET ${values} WHERE id = ${before.id} RETURNING ${columnsOf(collection)}`,
      )
      await collection.updated?.(trx, before, after)
      return after
    }),
  )
}

/** @throws ApiError 404 in Keystone's wording; clients that look up a name rely on the status */
export async function findRow(database: Knex, collection: Stored, id: string, lock?: 'lock'): Promise<Row> {
  const row = await maybeOne(
    database,
    sql<Row>`SELECT ${columnsOf(collection)} FROM ${identifier(collection.table)} WHERE id = ${id} ${lock === undefined ? sql`` : sql`FOR UPDATE`}`,
  )
  if (row === undefined) throw notFound(`Could not find ${collection.singular}: ${id}.`)
  return row
}

/** The rows that match a condition, ordered by ID. */
export const findRows = (database: Knex, collection: Stored, condition: Fragment): Promise<Row[]> =>
  many(
    database,
    unprepared(
      sql<Row>`SELECT ${columnsOf(collection)} FROM ${identifier(collection.table)} WHERE ${condition} ORDER BY id`,
    ),
  )

const columnsOf = ({ shown, hidden = [] }: Stored): Fragment => identifiers([...shown, ...hidden, 'extra'])

// Never stored as a client's additional attributes.
const RESERVED: ReadonlySet<string> = new Set(['id', 'links', 'domain_id'])

async function toColumns<Create extends z.ZodObject, Update extends z.ZodObject>(
  collection: Collection<Create, Update>,
  change: Change<z.output<Create> | z.output<Update>>,
  schema: z.ZodObject,
): Promise<Fields> {
  const entries = Object.entries(change.sent).filter(([, value]) => value !== undefined)
  const known = Object.fromEntries(entries.filter(([key]) => Object.hasOwn(schema.shape, key)))
  const additional = entries.filter(([key]) => !Object.hasOwn(schema.shape, key) && !RESERVED.has(key))
  const columns =
    collection.prepare === undefined
      ? known
      : await collection.prepare({ ...change, sent: known as typeof change.sent })
  if (columns.options !== undefined) columns.options = merge(change.before?.options, columns.options as Fields)
  if (additional.length > 0) columns.extra = merge(change.before?.extra, Object.fromEntries(additional))
  return columns
}

/** Merges options or attributes; null removes a key. */
function merge(before: Fields | undefined, sent: Fields): Fields {
  return Object.fromEntries(Object.entries({ ...before, ...sent }).filter(([, value]) => value !== null))
}

/** An immutable resource accepts only a change of its option `immutable`. */
function refuseImmutable(singular: string, before: Row, sent: Fields): void {
  if (before.options?.immutable !== true) return
  const options = sent.options
  const onlyOptions = Object.keys(sent).every(key => key === 'options')
  if (onlyOptions && typeof options === 'object' && options !== null && 'immutable' in options) return
  throw forbidden(`Unable to update immutable ${singular} resource: ${before.id}.`)
}

/** A row as answers show it. */
export function presentRow<Create extends z.ZodObject, Update extends z.ZodObject>(
  collection: Collection<Create, Update>,
  call: IdentityCall,
  row: Row,
): Fields {
  const shown = Object.fromEntries(collection.shown.map(column => [column, row[column]]))
  const links = { self: `${call.base}/v3/${collection.plural}/${encodeURIComponent(row.id)}` }
  return { ...row.extra, ...shown, ...collection.derive?.(row), links }
}

/** Turns constraint violations into conflicts. */
async function translateConflicts<T>(collection: { singular: string }, store: () => Promise<T>): Promise<T> {
  try {
    return await store()
  } catch (error) {
    if (error instanceof ApiError) throw error
    if (isUniqueViolation(error))
      throw conflict(`Conflict occurred attempting to store ${collection.singular} - Duplicate entry.`)
    if (sqlState(error) === '23503')
      throw conflict(`An object that the ${collection.singular} refers to was deleted concurrently.`)
    throw error
  }
}
