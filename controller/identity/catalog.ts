import type { Database } from '../database/connection.js'
import { many } from '../database/query.js'
import { sql } from '../database/sql.js'
import type { TokenDocument } from './tokens/document.js'

type CatalogEndpoint = { id: string; interface: string; region: string | null; region_id: string | null; url: string }
export type CatalogEntry = { id: string; type: string; name: string; endpoints: CatalogEndpoint[] }

/** The catalogue for a token: enabled services with their enabled endpoints. One query. */
export async function readCatalog(database: Database, token: TokenDocument): Promise<CatalogEntry[]> {
  const entries = await many(
    database,
    sql<CatalogEntry>`
     SELECT s.id, s.type, coalesce(s.name, '') AS name,
            coalesce(json_agg(json_build_object('id', e.id, 'interface', e.interface, 'region', e.region_id,
                                                'region_id', e.region_id, 'url', e.url) ORDER BY e.interface, e.id)
                     FILTER (WHERE e.id IS NOT NULL), '[]') AS endpoints
       FROM service s LEFT JOIN endpoint e ON e.service_id = s.id AND e.enabled
      WHERE s.enabled GROUP BY s.id ORDER BY s.type, s.id`,
  )
  return entries.map(entry => ({
    ...entry,
    endpoints: entry.endpoints.flatMap(endpoint => {
      const url = fillTemplate(endpoint.url, token)
      return url === null ? [] : [{ ...endpoint, url }]
    }),
  }))
}

/** Only scoped tokens carry a catalogue. */
export const hasCatalog = (token: TokenDocument): boolean => token.roles !== undefined

/**
 * Replaces placeholders such as `%(project_id)s` and `$(project_id)s` in an endpoint's URL with the token's IDs.
 * @returns null if the token lacks an ID, so that the endpoint is omitted
 */
export function fillTemplate(url: string, token: TokenDocument): string | null {
  const values: Readonly<Record<string, string | undefined>> = {
    project_id: token.project?.id,
    tenant_id: token.project?.id,
    user_id: token.user.id,
  }
  let complete = true
  const filled = url.replace(/[%$]\((\w+)\)s/g, (_, name: string) => {
    const value = Object.hasOwn(values, name) ? values[name] : undefined
    complete &&= value !== undefined
    return value ?? ''
  })
  return complete ? filled : null
}
