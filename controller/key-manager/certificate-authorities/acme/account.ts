import { createPrivateKey, generateKeyPair } from 'node:crypto'
import { promisify } from 'node:util'
import * as z from 'zod'
import { execute, maybeOne, one } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'
import { ConfigurationError } from '../../../options/configuration-error.js'
import { readSecret, sourceOf } from '../../../options/secret-source.js'
import { KEY_COLUMNS, type KeyRow, sealedFrom } from '../../crypto/keyring.js'
import { underActiveKey } from '../../crypto/under-active-key.js'
import { newId } from '../../ids.js'
import { CaFault } from '../ca-fault.js'
import type { Account, AcmeClient } from './client/client.js'
import { bindAccount } from './client/jose.js'
import { AcmeProblem } from './client/problem.js'
import type { AcmeService, AcmeSettings } from './options.js'

/** Encryption context of an account's key. */
export const accountKeyContext = (id: string): string => `ACME account ${id}`

/** The account cannot be opened before the operator changes a setting. The message is for operators. */
export class AccountRefused extends CaFault {}

/**
 * Our account at a directory: made and registered when it is first needed. Processes that try at once use one key.
 * @throws AccountRefused, AcmeProblem, Unreachable, CryptoUnavailable
 */
export async function openAccount(
  service: AcmeService,
  client: AcmeClient,
  directoryUrl: string,
  signal: AbortSignal,
): Promise<Account & { url: string }> {
  const { id, key, url } = (await findAccount(service, directoryUrl)) ?? (await makeAccount(service, directoryUrl))
  if (url !== null) return { key, url }
  const registered = await register(service.config.acme, client, { key, url }, signal)
  await execute(service.database, sql`UPDATE acme_client_account SET url = ${registered} WHERE id = ${id}`)
  return { key, url: registered }
}

/** Registers the account again when it is next needed: the CA does not know it any more. */
export async function forgetRegistration({ database }: AcmeService, directoryUrl: string): Promise<void> {
  await execute(database, sql`UPDATE acme_client_account SET url = NULL WHERE directory_url = ${directoryUrl}`)
}

async function findAccount({ database, keyring }: AcmeService, directoryUrl: string) {
  const found = await maybeOne(
    database,
    sql<KeyRow & { id: string; url: string | null; sealed: Buffer }>`
      SELECT a.id, a.url, a.sealed_key AS sealed, ${KEY_COLUMNS}
        FROM acme_client_account a JOIN project_key k ON k.id = a.project_key_id WHERE a.directory_url = ${directoryUrl}`,
  )
  if (found === undefined) return null
  const der = await keyring.open(sealedFrom(found.sealed, found), accountKeyContext(found.id))
  return { id: found.id, url: found.url, key: createPrivateKey({ key: der, format: 'der', type: 'pkcs8' }) }
}

async function makeAccount(service: AcmeService, directoryUrl: string) {
  const { database, keyring } = service
  const id = newId()
  const { privateKey } = await promisify(generateKeyPair)('ec', { namedCurve: 'prime256v1' })
  // The service's own keys belong to the project ''.
  await underActiveKey(keyring, '', async () => {
    const sealed = await keyring.seal('', privateKey.export({ format: 'der', type: 'pkcs8' }), accountKeyContext(id))
    const { active } = await one(
      database,
      sql<{ active: boolean }>`
        WITH standing AS MATERIALIZED (SELECT id FROM project_key WHERE id = ${sealed.projectKeyId}::uuid AND active),
        stored AS (
          INSERT INTO acme_client_account (id, directory_url, project_key_id, sealed_key)
          SELECT ${id}, ${directoryUrl}, standing.id, ${sealed.ciphertext}::bytea FROM standing
          ON CONFLICT (directory_url) DO NOTHING)
        SELECT EXISTS (SELECT FROM standing) AS active`,
    )
    return active ? 'stored' : 'key replaced'
  })
  const stored = await findAccount(service, directoryUrl)
  if (stored === null) throw new Error('The ACME account that was just stored is gone.')
  return stored
}

/** Registers a key; the CA answers with the existing account for a known one. @returns the account's URL */
async function register(
  settings: AcmeSettings,
  client: AcmeClient,
  account: Account,
  signal: AbortSignal,
): Promise<string> {
  const { newAccount, meta } = await client.directory(signal)
  if (meta?.termsOfService !== undefined && !settings.terms_of_service_agreed) {
    throw new AccountRefused(
      `The CA has terms of service (${meta.termsOfService}). Set key_manager.acme.terms_of_service_agreed if you agree.`,
    )
  }
  const binding = await externalBinding(settings)
  if (meta?.externalAccountRequired === true && binding === null) {
    throw new AccountRefused(
      'The CA demands an external account binding: set key_manager.acme.eab_key_id and the HMAC key.',
    )
  }
  const payload = {
    termsOfServiceAgreed: settings.terms_of_service_agreed,
    ...(settings.contact !== undefined && { contact: [`mailto:${settings.contact}`] }),
    ...(binding !== null && { externalAccountBinding: await bindAccount(account.key, newAccount, binding) }),
  }
  const { location } = await client.post(account, newAccount, payload, z.unknown(), signal).catch(error => {
    const isRefusal = error instanceof AcmeProblem && error.status < 500 && error.kind !== 'rateLimited'
    throw isRefusal ? new AccountRefused(`The CA refuses the account: ${error.message}`) : error
  })
  if (location === null) throw new AccountRefused('The CA named no URL for the new account.')
  return location
}

/** @throws AccountRefused if the HMAC key cannot be read */
async function externalBinding(settings: AcmeSettings): Promise<{ keyId: string; hmacKey: string } | null> {
  const { eab_key_id: keyId, eab_hmac_key_file, eab_hmac_key_variable, eab_hmac_key_command } = settings
  const source = sourceOf({ file: eab_hmac_key_file, variable: eab_hmac_key_variable, command: eab_hmac_key_command })
  if (keyId === undefined || source === null) return null
  try {
    return { keyId, hmacKey: await readSecret(source, 'the HMAC key of key_manager.acme') }
  } catch (error) {
    throw error instanceof ConfigurationError ? new AccountRefused(error.message) : error
  }
}
