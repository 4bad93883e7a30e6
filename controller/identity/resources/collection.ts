import { randomUUID } from 'node:crypto'
import type { Knex } from 'knex'
import { z } from 'zod'
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
  listed,
  listForm,
  oneForm,
  queryParameter,
  route,
  type Service,
} from '../dialect.js'
import { administrators, type Rule, readers } from '../policy.js'
import { lockRights } from '../tokens/revocation.js'

export type Fields = Record<string, unknown>

/** A row of a resource's table. */
export type Row = Fields & { id: string; extra?: Fields; options?: Fields }

/**
 * What makes one kind of resource: its table, what may be sent, what is shown, and what a change brings with it. From it `collectionRoutes`
 * makes list, create, show, update and delete, the same for all.
 */
export type Collection<Create extends z.ZodObject, Update extends z.ZodObject> = {
  singular: string
  plural: string
  table: string
  create: Create
  update: Update
  /** Query parameters that narrow the list: by a column of the same name, exactly. Others are ignored. */
  filters: Readonly<Record<string, Filter>>
  /** The columns that are shown. */
  shown: readonly string[]
  /** Other columns: what `derive` shows, and secrets. */
  hidden?: readonly string[]
  /** Shown beside the columns. */
  derive?: (row: Row) => Fields
  allow?: Partial<Record<'list' | 'create' | 'show' | 'update' | 'delete', Rule>>
  /** Columns that take long to compute. It runs before the transaction, which may hold locks that others wait for. */
  compute?: (sent: z.output<Create> | z.output<Update>, service: Service, call: IdentityCall) => Promise<Fields>
  /** Checks references and turns what was sent into columns. `before` is null at creation. */
  prepare?: (change: Change<z.output<Create> | z.output<Update>>) => Promise<Fields>
  /** True when tokens may stand on this resource, so that changes exclude the issuing of tokens. */
  carriesRights?: boolean
  /** Takes rights away after an update. */
  updated?: (trx: Knex, before: Row, after: Row) => Promise<void>
  /** Refuses a deletion by throwing, or takes rights away before it. */
  deleting?: (trx: Knex, row: Row) => Promise<void>
}

export type Change<Sent> = { trx: Knex; call: IdentityCall; sent: Sent; before: Row | null }

export type Filter = 'text' | 'boolean' | ((value: string) => Fragment)

/** What reading the rows of a resource takes. */
export type Stored = { singular: string; table: string; shown: readonly string[]; hidden?: readonly string[] }

/** 32 hexadecimal digits without dashes, as Keystone's ids are. */
export const newId = (): string => randomUUID().replaceAll('-', '')

/** Reads `{"<singular>": {...}}`. @returns what is inside */
export const bodyOf = <Schema extends z.ZodObject>(singular: string, schema: Schema) =>
  z.object({ [singular]: schema }).transform(body => body[singular] as z.output<Schema>)

export function collectionRoutes<Create extends z.ZodObject, Update extends z.ZodObject>(
  of: Collection<Create, Update>,
): IdentityRoute[] {
  const { singular, plural } = of
  const path = `/v3/${plural}`
  const item = `${path}/:id`
  const group = plural
  return [
    route({
      ...{ method: 'GET', path, right: of.allow?.list ?? readers, group, status: 200 },
      summary: `List ${plural}`,
      parameters: Object.keys(of.filters).map(name => queryParameter(name, `Only those with this ${name}.`)),
      get answer() {
        return listForm(plural, answerForm(of))
      },
      handle: async ({ database }, call) => {
        const rows = await findRows(database, of, and(filtersOf(of.filters, call)))
        return listed(
          call,
          plural,
          rows.map(row => presentRow(of, call, row)),
        )
      },
    }),
    route({
      ...{ method: 'POST', path, right: of.allow?.create ?? administrators, group, status: 201 },
      summary: `Create a ${singular}`,
      request: bodyOf(singular, of.create),
      get answer() {
        return oneForm(singular, answerForm(of))
      },
      handle: async (service, call) =>
        jsonAnswer(201, { [singular]: presentRow(of, call, await createRow(of, service, call)) }),
    }),
    route({
      ...{ method: 'GET', path: item, right: of.allow?.show ?? readers, group, status: 200 },
      summary: `Show a ${singular}`,
      get answer() {
        return oneForm(singular, answerForm(of))
      },
      handle: async ({ database }, call) => {
        const row = await findRow(database, of, call.params.id!)
        return jsonAnswer(200, { [singular]: presentRow(of, call, row) })
      },
    }),
    route({
      ...{ method: 'PATCH', path: item, right: of.allow?.update ?? administrators, group, status: 200 },
      summary: `Change a ${singular}; only what is given changes`,
      request: bodyOf(singular, of.update),
      get answer() {
        return oneForm(singular, answerForm(of))
      },
      handle: async (service, call) =>
        jsonAnswer(200, { [singular]: presentRow(of, call, await updateRow(of, service, call)) }),
    }),
    route({
      ...{ method: 'DELETE', path: item, right: of.allow?.delete ?? administrators, group, status: 204 },
      summary: `Delete a ${singular}`,
      handle: async ({ database }, call) => {
        await deleteRow(of, database, call.params.id!)
        return NO_CONTENT
      },
    }),
  ]
}

/** The form of an object in answers: what may be sent, as far as it is shown, with its id and links. */
function answerForm<Create extends z.ZodObject, Update extends z.ZodObject>(of: Collection<Create, Update>): Schema {
  const sent: Readonly<Record<string, Schema>> = Object(formOf(of.create).properties)
  const shown = of.shown.filter(name => name !== 'id').map(name => [name, sent[name] ?? {}] as const)
  return objectOf({ id: { type: 'string' }, ...Object.fromEntries(shown), links: { type: 'object' } })
}

async function deleteRow<Create extends z.ZodObject, Update extends z.ZodObject>(
  of: Collection<Create, Update>,
  database: Database,
  id: string,
): Promise<void> {
  await inTransaction(database, async trx => {
    if (of.carriesRights) await lockRights(trx)
    const row = await findRow(trx, of, id, 'lock')
    if (row.options?.immutable === true) {
      throw forbidden(`Unable to delete immutable ${of.singular} resource: ${row.id}.`)
    }
    await of.deleting?.(trx, row)
    await execute(trx, sql`DELETE FROM ${identifier(of.table)} WHERE id = ${row.id}`)
  })
}

/** Creates a row from the body of a request. @param fixed columns that come from elsewhere, such as an id in the path */
export async function createRow<Create extends z.ZodObject, Update extends z.ZodObject>(
  of: Collection<Create, Update>,
  service: Service,
  call: IdentityCall<z.output<Create>>,
  fixed: Fields = {},
): Promise<Row> {
  const sent = await call.body()
  const computed = await of.compute?.(sent, service, call)
  return storing(of, () =>
    inTransaction(service.database, async trx => {
      const columns = await toColumns(of, { trx, call, sent, before: null }, of.create)
      const values = insertion([boundColumns({ id: newId(), ...columns, ...computed, ...fixed })])
      return one(trx, sql<Row>`INSERT INTO ${identifier(of.table)} ${values} RETURNING ${columnsOf(of)}`)
    }),
  )
}

async function updateRow<Create extends z.ZodObject, Update extends z.ZodObject>(
  of: Collection<Create, Update>,
  service: Service,
  call: IdentityCall<z.output<Update>>,
): Promise<Row> {
  const sent = await call.body()
  const computed = await of.compute?.(sent, service, call)
  return storing(of, () =>
    inTransaction(service.database, async trx => {
      if (of.carriesRights) await lockRights(trx)
      const before = await findRow(trx, of, call.params.id!, 'lock')
      refuseImmutable(of.singular, before, sent)
      for (const key of ['id', 'domain_id']) {
        if (sent[key] !== undefined && before[key] !== undefined && sent[key] !== before[key]) {
          throw badRequest(`The ${key} of a ${of.singular} cannot be changed.`)
        }
      }
      const columns = { ...(await toColumns(of, { trx, call, sent, before }, of.update)), ...computed }
      if (Object.keys(columns).length === 0) return before
      const values = assignments(boundColumns(columns))
      const after = await one(
        trx,
        sql<Row>`UPDATE ${identifier(of.table)} SET ${values} WHERE id = ${before.id} RETURNING ${columnsOf(of)}`,
      )
      await of.updated?.(trx, before, after)
      return after
    }),
  )
}

/** @throws ApiError 404 in Keystone's words; clients that look up a name rely on the status */
export async function findRow(database: Knex, of: Stored, id: string, lock?: 'lock'): Promise<Row> {
  const row = await maybeOne(
    database,
    sql<Row>`SELECT ${columnsOf(of)} FROM ${identifier(of.table)} WHERE id = ${id} ${lock === undefined ? sql`` : sql`FOR UPDATE`}`,
  )
  if (row === undefined) throw notFound(`Could not find ${of.singular}: ${id}.`)
  return row
}

/** The rows of which a condition holds, in the order of their ids. */
export const findRows = (database: Knex, of: Stored, condition: Fragment): Promise<Row[]> =>
  many(
    database,
    unprepared(sql<Row>`SELECT ${columnsOf(of)} FROM ${identifier(of.table)} WHERE ${condition} ORDER BY id`),
  )

const columnsOf = ({ shown, hidden = [] }: Stored): Fragment => identifiers([...shown, ...hidden, 'extra'])

function filtersOf(filters: Readonly<Record<string, Filter>>, call: IdentityCall): Fragment[] {
  return Object.entries(filters).flatMap(([name, filter]) => {
    const value = call.argument(name)
    if (value === undefined) return []
    if (filter === 'text') return [sql`${identifier(name)} = ${value}`]
    if (filter === 'boolean') return [sql`${identifier(name)} = ${!/^(0|false|no|off|f|n)$/i.test(value)}`]
    return [filter(value)]
  })
}

// What a client sends under these names is never taken for an attribute of its own.
const RESERVED: ReadonlySet<string> = new Set(['id', 'links', 'domain_id'])

async function toColumns<Create extends z.ZodObject, Update extends z.ZodObject>(
  of: Collection<Create, Update>,
  change: Change<z.output<Create> | z.output<Update>>,
  schema: z.ZodObject,
): Promise<Fields> {
  const entries = Object.entries(change.sent).filter(([, value]) => value !== undefined)
  const known = Object.fromEntries(entries.filter(([key]) => Object.hasOwn(schema.shape, key)))
  const additional = entries.filter(([key]) => !Object.hasOwn(schema.shape, key) && !RESERVED.has(key))
  const columns = of.prepare === undefined ? known : await of.prepare({ ...change, sent: known as typeof change.sent })
  if (columns.options !== undefined) columns.options = merged(change.before?.options, columns.options as Fields)
  if (additional.length > 0) columns.extra = merged(change.before?.extra, Object.fromEntries(additional))
  return columns
}

/** Null takes a key away. */
function merged(before: Fields | undefined, sent: Fields): Fields {
  return Object.fromEntries(Object.entries({ ...before, ...sent }).filter(([, value]) => value !== null))
}

/** An immutable resource takes one change only: to be immutable no more. */
function refuseImmutable(singular: string, before: Row, sent: Fields): void {
  if (before.options?.immutable !== true) return
  const options = sent.options
  const onlyOptions = Object.keys(sent).every(key => key === 'options')
  if (onlyOptions && typeof options === 'object' && options !== null && 'immutable' in options) return
  throw forbidden(`Unable to update immutable ${singular} resource: ${before.id}.`)
}

/** A row as clients see it. */
export function presentRow<Create extends z.ZodObject, Update extends z.ZodObject>(
  of: Collection<Create, Update>,
  call: IdentityCall,
  row: Row,
): Fields {
  const shown = Object.fromEntries(of.shown.map(column => [column, row[column]]))
  const links = { self: `${call.base}/v3/${of.plural}/${encodeURIComponent(row.id)}` }
  return { ...row.extra, ...shown, ...of.derive?.(row), links }
}

/** Turns the database's refusals into answers. */
async function storing<T>(of: { singular: string }, store: () => Promise<T>): Promise<T> {
  try {
    return await store()
  } catch (error) {
    if (error instanceof ApiError) throw error
    if (isUniqueViolation(error))
      throw conflict(`Conflict occurred attempting to store ${of.singular} - Duplicate entry.`)
    if (sqlState(error) === '23503') throw conflict(`Something that the ${of.singular} refers to was just removed.`)
    throw error
  }
}
