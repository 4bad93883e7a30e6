import type { Database } from '../../database/connection.js'
import { backendOf, createCaBackends } from '../../key-manager/certificate-authorities/backends.js'
import { readSerialText } from '../../key-manager/certificate-authorities/x509/certificate.js'
import {
  isRevocationReason,
  REVOCATION_REASONS,
} from '../../key-manager/certificate-authorities/x509/revocation-list.js'
import { isId } from '../../key-manager/ids.js'
import type { Service } from '../../key-manager/routes.js'
import { openDatabase, openInstance } from '../instance.js'
import { Sentence } from '../sentence.js'
import { print, table } from '../terminal.js'
import { openKeyring } from './keyring.js'

/** Works on the CAs of an instance; everything is closed afterwards. */
async function withAuthorities<Result>(
  directory: string,
  work: (service: Service) => Promise<Result>,
): Promise<Result> {
  const instance = openInstance(directory)
  const database = openDatabase(instance, 'key_manager', 'ca')
  try {
    const keyring = await openKeyring(instance, database)
    try {
      return await work({ database, keyring, config: instance.config.key_manager })
    } finally {
      await Promise.all([...keyring.backends.values()].map(backend => backend.stop()))
    }
  } finally {
    await database.destroy()
  }
}

/** Prints every certificate authority. */
export async function listAuthorities(directory: string): Promise<void> {
  await withAuthorities(directory, async ({ database }) => {
    const { rows } = await database.raw(
      `SELECT a.id, a.name, a.subject_dn AS subject, coalesce(a.project_id, '(all)') AS project, iso_time(a.expiration) AS ends,
              (SELECT count(*) FROM issued_certificate c WHERE c.ca_id = a.id)::text AS issued
         FROM certificate_authority a ORDER BY a.created_at, a.id`,
    )
    const lines = (rows as Record<'id' | 'name' | 'subject' | 'project' | 'ends' | 'issued', string>[]).map(row => [
      ...[row.id, row.project, row.issued, row.ends, row.name, row.subject],
    ])
    for (const line of table([['id', 'project', 'issued', 'until', 'name', 'subject'], ...lines])) print(line)
  })
}

/** Prints the certificates that a CA has issued, the newest first. @throws Sentence when there is no such CA */
export async function listCertificates(directory: string, ca: string): Promise<void> {
  await withAuthorities(directory, async ({ database }) => {
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
    for (const line of table([['serial', 'until', 'revoked', 'subject'], ...lines])) print(line)
  })
}

/** Revokes a certificate. @throws Sentence when CA, certificate or reason are not known */
export async function revokeIssued(directory: string, ca: string, serialText: string, reason: string): Promise<void> {
  if (!isRevocationReason(reason)) {
    throw new Sentence(`The reason must be one of ${Object.keys(REVOCATION_REASONS).join(', ')}.`)
  }
  const serial = readSerialText(serialText)
  if (serial === null) throw new Sentence(`"${serialText}" is no serial number.`)
  await withAuthorities(directory, async service => {
    const { id, pluginName } = await authority(service.database, ca)
    const outcome = await backendOf(createCaBackends(service), pluginName).revoke(id, serial, reason)
    if (outcome === 'unknown') throw new Sentence(`The CA ${id} has issued no certificate ${serial}.`)
    print(
      outcome === 'revoked' ? `The certificate ${serial} is revoked.` : `The certificate ${serial} was revoked before.`,
    )
  })
}

async function authority(database: Database, id: string): Promise<{ id: string; pluginName: string }> {
  const found = isId(id) ? await database('certificate_authority').where({ id }).first('id', 'plugin_name') : undefined
  if (found === undefined) throw new Sentence(`There is no certificate authority ${id}.`)
  return { id: found.id, pluginName: found.plugin_name }
}
