import { Argument } from 'commander'
import { many } from '../../../../database/query.js'
import { sql } from '../../../../database/sql.js'
import type { Command } from '../../../command.js'
import { print, table } from '../../../terminal.js'
import { authority, type Write, withRows } from './authority.js'

export const command: Command = {
  arguments: [new Argument('<ca>', 'id of the certificate authority')],
  run: (directory, { ca }: { ca: string }) => listCertificates(directory, ca),
}

/** Lists the certificates of a CA, newest first. @throws OperatorError for an unknown CA */
export async function listCertificates(directory: string, ca: string, write: Write = print): Promise<void> {
  await withRows(directory, async database => {
    const { id } = await authority(database, ca)
    const rows = await many(
      database,
      sql<Record<'serial' | 'subject' | 'ends' | 'revoked', string>>`
       SELECT serial, subject_dn AS subject, iso_time(not_after) AS ends,
              coalesce(revocation_reason || ' ' || iso_time(revoked_at), '-') AS revoked
         FROM issued_certificate WHERE ca_id = ${id} ORDER BY issued_at DESC, serial`,
    )
    const lines = rows.map(row => [...[row.serial, row.ends, row.revoked, row.subject]])
    for (const line of table([['serial', 'until', 'revoked', 'subject'], ...lines])) write(line)
  })
}
