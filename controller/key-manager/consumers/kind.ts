import type { Knex } from 'knex'
import type { z } from 'zod'
import { type Fragment, sql, trusted } from '../../database/sql.js'
import type { Target } from '../rights.js'

/** One family of consumers: those of secrets, or those of containers. All SQL of it follows from this. */
export type ConsumerKind = {
  /** What is consumed: its table; the consumers' table is `<owner>_consumer`, with a column `<owner>_id`. */
  owner: 'secret' | 'container'
  /** SQL over the owner's table by the alias o: neither deleted nor past its time. */
  live: Fragment
  /** What tells the consumers of one owner apart: the members of a body, by their columns. */
  fields: Readonly<Record<string, string>>
  body: z.ZodType<Readonly<Record<string, string>>>
  /** Order of the list, over the alias c. */
  order: Fragment
  /** The owner, live, of any project. @throws ApiError 404 */
  find: (database: Knex, id: string | undefined) => Promise<Target & { id: string }>
  /** JSON text of the owner's record with its consumers. `base` is the URL of the root of the API. @throws ApiError 404 when it has gone meanwhile */
  record: (database: Knex, call: { base: string }, id: string) => Promise<string>
}

export const tableOf = ({ owner }: ConsumerKind): string => `${owner}_consumer`

export const columnsOf = ({ fields }: ConsumerKind): string[] => Object.values(fields)

/** SQL of the text of the JSON record of a consumer (alias c). */
export function consumerJson({ fields }: ConsumerKind): Fragment {
  const members = Object.entries(fields).map(([member, column]) => `'${member}', c.${column}`)
  return sql`json_build_object('created', iso_time(c.created_at), 'updated', iso_time(c.updated_at), 'status', 'ACTIVE',
    ${trusted(members.join(', '))})::text`
}
