import type { Knex } from 'knex'
import type { Answer } from '../../../api/answer.js'
import type { Database } from '../../../database/connection.js'
import { execute, one } from '../../../database/query.js'
import { assignments, type Bound, type Fragment, identifier, insertion, sql } from '../../../database/sql.js'
import { inTransaction, isUniqueViolation, sqlState, type Transaction } from '../../../database/transaction.js'
import { conflict } from '../../../http/errors.js'
import { missing, missingReference } from '../../schema/faults.js'
import { parseArguments } from '../../schema/list-query.js'
import { canonicalKey, type Resource } from '../../schema/resource.js'
import { authorise, type Requester, type Right } from '../../schema/rights.js'
import { selectObject } from '../../schema/select.js'
import type { Handler } from '../dialect.js'
import { objectAnswer } from '../object-routes.js'

/**
 * Columns of a flavor, an availability zone or a profile of either. Administrators create them for all
 * projects. Foreign keys prevent the deletion of a row in use.
 */
type Columns = Readonly<Record<string, Bound>>

/** These objects have no project, so the caller's project decides. @throws ApiError 403 */
export const authoriseShared = (caller: Requester, right: Right): void =>
  authorise(caller, right, caller.project?.id ?? null)

/**
 * Creates a flavor or an availability zone.
 * @throws ApiError 409 when the name is taken, 400 when the profile does not exist
 */
export async function insertShared(
  database: Database,
  resource: Resource,
  columns: Columns & { name: string },
  profile: { label: string; id: string },
): Promise<Answer> {
  return inTransaction(database, async trx => {
    const { key } = await one(
      trx,
      sql<{ key: string }>`
        INSERT INTO ${identifier(resource.table)} ${insertion([columns])}
        RETURNING ${identifier(resource.key.column)} AS key`,
    )
    return answerWith(201, trx, resource, key)
  }).catch(error => {
    if (isForeignKeyViolation(error)) throw missingReference(profile.label, profile.id)
    throw isUniqueViolation(error) ? nameTaken(resource, columns.name) : error
  })
}

/** @param name from the path @throws ApiError 404, 409 when the new name is taken */
export async function updateShared(
  database: Database,
  resource: Resource,
  name: string,
  columns: Columns,
): Promise<Answer> {
  const key = requireKey(resource, name)
  return inTransaction(database, async trx => {
    await writeShared(trx, resource, key, columns)
    return answerWith(200, trx, resource, key)
  }).catch(error => {
    throw isUniqueViolation(error) ? nameTaken(resource, String(columns.name)) : error
  })
}

export async function writeShared(trx: Transaction, resource: Resource, key: string, columns: Columns): Promise<void> {
  if (Object.keys(columns).length > 0) {
    await execute(
      trx,
      sql`UPDATE ${identifier(resource.table)} SET ${assignments(columns)} WHERE ${keyIs(resource, key)}`,
    )
  }
}

/** Handler of a DELETE. */
export function removeShared(resource: Resource): Handler {
  return async ({ database }, { caller, params, queryString }, right) => {
    parseArguments(queryString)
    authoriseShared(caller, right)
    const key = requireKey(resource, params[resource.key.column] ?? '')
    const removed = await execute(
      database,
      sql`DELETE FROM ${identifier(resource.table)} WHERE ${keyIs(resource, key)}`,
    ).catch(error => {
      throw isForeignKeyViolation(error) ? inUse(resource, key) : error
    })
    if (removed === 0) throw missing(resource.label, key)
    return { status: 204 }
  }
}

const keyIs = ({ key }: Resource, value: string): Fragment => sql`${identifier(key.column)} = ${value}`

/** @throws ApiError 404 */
export async function answerWith(status: number, trx: Knex, resource: Resource, key: string): Promise<Answer> {
  const object = await selectObject(trx, resource, sql`o.${keyIs(resource, key)}`)
  if (object === undefined) throw missing(resource.label, key)
  return objectAnswer(status, resource, object)
}

/** @throws ApiError 404 */
export function requireKey(resource: Resource, name: string): string {
  const key = canonicalKey(resource, name)
  if (key === null) throw missing(resource.label, name)
  return key
}

export const inUse = ({ label }: Resource, key: string) => conflict(`${label} ${key} is in use and cannot be modified.`)

const nameTaken = ({ label }: Resource, name: string) => conflict(`A ${label.toLowerCase()} of ${name} already exists.`)

export const isForeignKeyViolation = (error: unknown): boolean => sqlState(error) === '23503'
