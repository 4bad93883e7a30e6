import { execute, maybeOne } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'
import type { Logger } from '../../../log/log.js'
import { ConfigurationError } from '../../../options/configuration-error.js'
import { readPem } from '../../../options/pem-file.js'
import { newId } from '../../ids.js'
import type { CaBackend, IssueOutcome, RenewalInfo } from '../ca-backend.js'
import { covers, namePolicyRefusal, projectNames } from '../internal/name-policy.js'
import { rowPublisher } from './challenge-rows.js'
import { type AcmeClient, createAcmeClient } from './client/client.js'
import { AcmeProblem } from './client/problem.js'
import { Unreachable } from './client/transport.js'
import { dnsHookPublisher } from './dns-hook.js'
import { type AcmeParts, issueByAcme } from './issue.js'
import type { AcmeService } from './options.js'
import { identifiersOf } from './order.js'
import { readRenewalInfo } from './renewal-info.js'
import { revokeByAcme } from './revoke.js'
import { createShares } from './shares.js'
import { sweepAcme } from './sweep.js'

const NAME = 'acme'

/** Fewer than a worker's slots: a CA that hangs leaves some for other orders. */
const TURNS = 4
const TURNS_PER_PROJECT = 2

/**
 * An external CA that speaks ACME (RFC 8555), with an account of the operator.
 * @returns null without the setting for its directory
 */
export function createAcmeCa(service: AcmeService, log: Logger): CaBackend | null {
  const { directory_url: directoryUrl } = service.config.acme
  if (directoryUrl === undefined) return null
  const publishers = publishersOf(service, log)
  const parts = acmeParts(service, directoryUrl, publishers, log)
  const shares = createShares(TURNS, TURNS_PER_PROJECT)
  return {
    name: NAME,
    takesSteps: true,
    prepare: () => registerAuthority(service, directoryUrl),
    issue: async (caId, projectId, request, signal, details): Promise<IssueOutcome> => {
      if (!(await isOfDirectory(service, caId, directoryUrl))) {
        return { kind: 'rejected', reason: 'The operator does not use this certificate authority any more.' }
      }
      const refusal = namePolicyRefusal(service.config.certificate_authority, projectId, request)
      if (refusal !== null) return { kind: 'rejected', reason: refusal }
      const identifiers = identifiersOf(request)
      if (identifiers === null) {
        return {
          kind: 'rejected',
          reason: 'The CA certifies host names and addresses, and the request has others or none.',
        }
      }
      const endTurn = shares.take(projectId)
      if (endTurn === null) return { kind: 'pending', seconds: 2, message: 'Other orders have their turn at the CA.' }
      try {
        return await issueByAcme(parts(), { ...details, caId, projectId, request, identifiers }, signal)
      } catch (error) {
        if (!(error instanceof ConfigurationError)) throw error
        log.error({ reason: error.message }, 'the ACME CA cannot be used')
        return { kind: 'unavailable', message: 'The operator’s settings for the CA are wrong.' }
      } finally {
        endTurn()
      }
    },
    renewalInfo: (pem, signal) => infoOrNothing(() => parts().client, pem, signal, log),
    createSubordinate: null,
    revocationList: async () => null,
    sweep: () => sweepAcme({ service, publishers, log }),
    revoke: (caId, serial, reason) => revokeByAcme(parts(), caId, serial, reason),
  }
}

function publishersOf({ database, config: { acme } }: AcmeService, log: Logger): AcmeParts['publishers'] {
  const rows = rowPublisher(database)
  const hook =
    acme.dns_hook === undefined
      ? undefined
      : dnsHookPublisher(database, { argv: acme.dns_hook, timeoutSeconds: acme.dns_hook_timeout }, log)
  return { 'http-01': rows, 'tls-alpn-01': rows, ...(hook !== undefined && { 'dns-01': hook }) }
}

/** What issuing needs; reads the CA file when it is first needed. @throws ConfigurationError */
function acmeParts(
  service: AcmeService,
  directoryUrl: string,
  publishers: AcmeParts['publishers'],
  log: Logger,
): () => AcmeParts {
  const { acme, certificate_authority: names } = service.config
  let client: AcmeClient | null = null
  return () => {
    client ??= createAcmeClient(
      directoryUrl,
      acme.ca_file === undefined ? undefined : readPem(acme.ca_file, 'key_manager.acme.ca_file'),
    )
    return {
      ...{ service, client, directoryUrl, publishers, log },
      // The hook may write any record of the operator's zones, so a project proves only names that it was given.
      dnsAllowed: (projectId, name) => projectNames(names, projectId).some(own => covers(own, name)),
    }
  }
}

/** A CA whose information cannot be had now is asked again later. */
async function infoOrNothing(
  client: () => AcmeClient,
  pem: string,
  signal: AbortSignal,
  log: Logger,
): Promise<RenewalInfo | null> {
  try {
    return await readRenewalInfo(client(), pem, signal)
  } catch (error) {
    if (error instanceof ConfigurationError) {
      log.error({ reason: error.message }, 'the ACME CA cannot be asked when to renew')
      return { window: null, againSeconds: 3600 }
    }
    if (error instanceof AcmeProblem) return { window: null, againSeconds: Math.max(3600, error.retryAfter ?? 0) }
    if (error instanceof Unreachable) return { window: null, againSeconds: 3600 }
    throw error
  }
}

/** Registers the CA of the directory, unless it is known. */
async function registerAuthority({ database }: AcmeService, directoryUrl: string): Promise<void> {
  const { host } = new URL(directoryUrl)
  await execute(
    database,
    sql`INSERT INTO certificate_authority (id, plugin_name, plugin_ca_id, name, description, subject_dn)
        VALUES (${newId()}, ${NAME}, ${directoryUrl}, ${`ACME ${host}`.slice(0, 255)},
                'An external certificate authority that speaks ACME', ${`CN=${host}`})
        ON CONFLICT (plugin_name, plugin_ca_id) DO NOTHING`,
  )
}

async function isOfDirectory({ database }: AcmeService, caId: string, directoryUrl: string): Promise<boolean> {
  const found = await maybeOne(
    database,
    sql`SELECT 1 FROM certificate_authority WHERE id = ${caId} AND plugin_name = ${NAME} AND plugin_ca_id = ${directoryUrl}`,
  )
  return found !== undefined
}
