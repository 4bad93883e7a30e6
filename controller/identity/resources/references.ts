import type { Knex } from 'knex'
import { maybeOne } from '../../database/query.js'
import { identifier, sql } from '../../database/sql.js'
import { notFound } from '../../http/errors.js'
import type { TokenDocument } from '../tokens/document.js'

/** @throws ApiError 404 if the row that a request refers to does not exist */
export async function mustExist(database: Knex, table: string, singular: string, id: string): Promise<void> {
  const row = await maybeOne(database, sql`SELECT id FROM ${identifier(table)} WHERE id = ${id}`)
  if (row === undefined) throw notFound(`Could not find ${singular}: ${id}.`)
}

/** The default domain of a new object: that of the token's scope. */
export function domainOfToken(token: TokenDocument): string {
  return token.domain?.id ?? token.project?.domain.id ?? token.user.domain.id
}
