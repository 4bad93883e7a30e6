import * as z from 'zod'
import { allReferences } from '../../../x509/material/reference.js'
import { badRequest } from '../../http/errors.js'
import { checkUnavailable } from '../../inspection/checks.js'
import type { Logger } from '../../log/log.js'
import { KeyManagerUnavailable } from '../barbican/errors.js'
import { createKeyManagerClient, type KeyManagerClientOptions } from '../barbican/key-manager-client.js'
import { badReferencesIn, type CertificateSource } from '../certificate-source.js'

export type KraterOptions = {
  /** Its `url` is the key manager's root, without /v1. */
  keyManager: KeyManagerClientOptions
  /** The URL of a load balancer, as its consumers show it. */
  loadBalancerUrl: (id: string) => string
  log: Logger
}

const answerSchema = z.object({
  references: z.array(z.object({ ref: z.string(), reason: z.string().optional() })),
})

const faultSchema = z.object({ description: z.string() })

/**
 * Certificates in Krater's own key manager, which checks and binds them itself, with the caller's token: nobody else
 * sees a key.
 */
export function createKraterSource({ keyManager, loadBalancerUrl, log }: KraterOptions): CertificateSource {
  const client = createKeyManagerClient(keyManager)
  return {
    check: async ({ token }, loadBalancerId, { certificates, authorities, revocationLists }) => {
      const body = {
        url: loadBalancerUrl(loadBalancerId),
        certificates,
        authorities,
        revocation_lists: revocationLists,
      }
      const path = `/v1/bindings/${loadBalancerId}`
      const signal = AbortSignal.timeout(keyManager.answerSeconds * 1000)
      const request = { method: 'POST', path, token, body, alsoConclusive: 400 } as const
      const { status, bytes } = await client.send(request, signal).catch(error => {
        if (!(error instanceof KeyManagerUnavailable)) throw error
        log.warn(`Cannot check certificate references: ${error.message}`)
        throw checkUnavailable('The key manager does not answer, so certificate references cannot be checked')
      })
      if (status === 400) throw badRequest(faultSchema.parse(JSON.parse(bytes.toString())).description)
      if (status !== 200) {
        const reason = status === 401 ? 'the key manager does not accept your token' : 'you may not use the key manager'
        return allReferences({ certificates, authorities, revocationLists }).map(ref => ({ ref, reason }))
      }
      const { references } = answerSchema.parse(JSON.parse(bytes.toString()))
      return badReferencesIn(references.map(({ ref, reason = null }) => ({ ref, wrong: reason })))
    },
    close: client.close,
  }
}
