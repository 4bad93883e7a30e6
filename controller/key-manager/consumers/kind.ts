import type { Knex } from 'knex'
import type * as z from 'zod'
import { type Fragment, sql, trusted } from '../../database/sql.js'
import type { Target } from '../rights.js'

/** One kind of consumers: of secrets or of containers. Their SQL is built from this. */
export type ConsumerKind = {
  /** The table of what is consumed. The consumers' table is `<owner>_consumer`, with a column `<owner>_id`. */
  owner: 'secret' | 'container'
  /** SQL over the owner's table (alias o): neither deleted nor expired. */
  live: Fragment
  /** The members of a body, which identify a consumer of one owner, each with its column. */
  fields: Readonly<Record<string, string>>
  body: z.ZodType<Readonly<Record<string, string>>>
  /** Order of the list (alias c). */
  order: Fragment
  /** The live owner, of any project. @throws ApiError 404 */
  find: (database: Knex, id: string | undefined) => Promise<Target & { id: string }>
  /**
   * The owner's record with its consumers, as JSON text.
   * @param call `base` is the URL of the API's root
   * @throws ApiError 404 when the owner was deleted
   */
  record: (database: Knex, call: { base: string }, id: string) => Promise<string>
}

export const tableOf = ({ owner }: ConsumerKind): string => `${owner}_consumer`

export const columnsOf = ({ fields }: ConsumerKind): string[] => Object.values(fields)

/** SQL for the record of a consumer (alias c) as JSON text. */
export function consumerJson({ fields }: ConsumerKind): Fragment {
  const members = Object.entries(fields).map(([member, column]) => `'${member}', c.${column}`)
  return sql`json_build_object('created', iso_time(c.created_at), 'updated', iso_time(c.updated_at), 'status', 'ACTIVE',
    ${trusted(members.join(', '))})::text`
}
