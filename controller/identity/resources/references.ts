import type { Knex } from 'knex'
import { notFound } from '../../http/errors.js'
import type { TokenDocument } from '../tokens/document.js'

/** @throws ApiError 404 when the row that a request refers to is not there */
export async function mustExist(database: Knex, table: string, singular: string, id: string): Promise<void> {
  const row = await database(table).where({ id }).first('id')
  if (row === undefined) throw notFound(`Could not find ${singular}: ${id}.`)
}

/** The domain of a new object that names none: that of the token's scope. */
export function domainOfToken(token: TokenDocument): string {
  return token.domain?.id ?? token.project?.domain.id ?? token.user.domain.id
}
