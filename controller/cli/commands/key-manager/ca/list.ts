import { many } from '../../../../database/query.js'
import { sql } from '../../../../database/sql.js'
import type { Command } from '../../../command.js'
import { print, table } from '../../../terminal.js'
import { type Write, withRows } from './authority.js'

export const command: Command = { run: directory => listAuthorities(directory) }

/** Lists every certificate authority. */
export async function listAuthorities(directory: string, write: Write = print): Promise<void> {
  await withRows(directory, async database => {
    const rows = await many(
      database,
      sql<Record<'id' | 'name' | 'subject' | 'project' | 'ends' | 'issued', string>>`
       SELECT a.id, a.name, a.subject_dn AS subject, coalesce(a.project_id, '(all)') AS project, iso_time(a.expiration) AS ends,
              (SELECT count(*) FROM issued_certificate c WHERE c.ca_id = a.id)::text AS issued
         FROM certificate_authority a ORDER BY a.created_at, a.id`,
    )
    const lines = rows.map(row => [...[row.id, row.project, row.issued, row.ends, row.name, row.subject]])
    for (const line of table([['id', 'project', 'issued', 'until', 'name', 'subject'], ...lines])) write(line)
  })
}
