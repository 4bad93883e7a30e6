import type { Database } from '../../../database/connection.js'
import { backendOf, createCaBackends } from '../../../key-manager/certificate-authorities/backends.js'
import { isId } from '../../../key-manager/ids.js'
import { readSerialText } from '../../../x509/certificate.js'
import { isRevocationReason, REVOCATION_REASONS } from '../../../x509/revocation-list.js'
import { OperatorError } from '../../operator-error.js'
import { print, table } from '../../terminal.js'
import { type Instance, openDatabase, openInstance } from '../../wiring/instance.js'
import { openKeyring } from '../../wiring/key-manager/keyring.js'

type Write = (line: string) => void

/** Works on the key manager's rows; the connection is closed afterwards. */
async function withRows<Result>(
  directory: string,
  work: (database: Database, instance: Instance) => Promise<Result>,
): Promise<Result> {
  const instance = openInstance(directory)
  const database = openDatabase(instance, 'key_manager', 'ca')
  try {
    return await work(database, instance)
  } finally {
    await database.destroy()
  }
}

/** Tells every certificate authority. */
export async function listAuthorities(directory: string, write: Write = print): Promise<void> {
  await withRows(directory, async database => {
    const { rows } = await database.raw(
      `SELECT a.id, a.name, a.subject_dn AS subject, coalesce(a.project_id, '(all)') AS project, iso_time(a.expiration) AS ends,
              (SELECT count(*) FROM issued_certificate c WHERE c.ca_id = a.id)::text AS issued
         FROM certificate_authority a ORDER BY a.created_at, a.id`,
    )
    const lines = (rows as Record<'id' | 'name' | 'subject' | 'project' | 'ends' | 'issued', string>[]).map(row => [
      ...[row.id, row.project, row.issued, row.ends, row.name, row.subject],
    ])
    for (const line of table([['id', 'project', 'issued', 'until', 'name', 'subject'], ...lines])) write(line)
  })
}

/** Tells the certificates that a CA has issued, the newest first. @throws OperatorError when there is no such CA */
export async function listCertificates(directory: string, ca: string, write: Write = print): Promise<void> {
  await withRows(directory, async database => {
    const { id } = await authority(database, ca)
    const { rows } = await database.raw(
      `SELECT serial, subject_dn AS subject, iso_time(not_after) AS ends,
              coalesce(revocation_reason || ' ' || iso_time(revoked_at), '-') AS revoked
         FROM issued_certificate WHERE ca_id = ? ORDER BY issued_at DESC, serial`,
      [id],
    )
    const lines = (rows as Record<'serial' | 'subject' | 'ends' | 'revoked', string>[]).map(row => [
      ...[row.serial, row.ends, row.revoked, row.subject],
    ])
    for (const line of table([['serial', 'until', 'revoked', 'subject'], ...lines])) write(line)
  })
}

export type Revocation = { ca: string; serial: string; reason: string }

/** Revokes a certificate. @throws OperatorError when CA, certificate or reason are not known */
export async function revokeIssued(directory: string, revocation: Revocation, write: Write = print): Promise<void> {
  const { reason } = revocation
  if (!isRevocationReason(reason)) {
    throw new OperatorError(`The reason must be one of ${Object.keys(REVOCATION_REASONS).join(', ')}.`)
  }
  const serial = readSerialText(revocation.serial)
  if (serial === null) throw new OperatorError(`"${revocation.serial}" is no serial number.`)
  await withRows(directory, async (database, instance) => {
    const { id, pluginName } = await authority(database, revocation.ca)
    const keyring = await openKeyring(instance, database)
    try {
      const backends = createCaBackends({ database, keyring, config: instance.config.key_manager })
      const outcome = await backendOf(backends, pluginName).revoke(id, serial, reason)
      if (outcome === 'unknown') throw new OperatorError(`The CA ${id} has issued no certificate ${serial}.`)
      write(`The certificate ${serial} ${outcome === 'revoked' ? 'is revoked' : 'was revoked before'}.`)
    } finally {
      await Promise.all([...keyring.backends.values()].map(backend => backend.stop()))
    }
  })
}

async function authority(database: Database, id: string): Promise<{ id: string; pluginName: string }> {
  const found = isId(id) ? await database('certificate_authority').where({ id }).first('id', 'plugin_name') : undefined
  if (found === undefined) throw new OperatorError(`There is no certificate authority ${id}.`)
  return { id: found.id, pluginName: found.plugin_name }
}
