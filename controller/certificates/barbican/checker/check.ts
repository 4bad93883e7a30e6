import { itemsOf } from '../../../../x509/material/load.js'
import type { RequestedReferences } from '../../../../x509/material/reference.js'
import { type CheckLimits, CheckTooSlow, type Verdict } from '../../../inspection/checks.js'
import type { InspectorOptions } from '../../../inspection/inspector.js'
import { KeyManagerUnavailable } from '../errors.js'
import type { KeyManagerClientOptions } from '../key-manager-client.js'
import type { ServiceUser } from '../service-user.js'
import { runChecker, ServiceTokenRefused } from './launch.js'

export type CheckerOptions = {
  /** Its `url` is the key manager's root, without /v1. */
  keyManager: KeyManagerClientOptions
  serviceUser: ServiceUser
  inspector: InspectorOptions
  limits: CheckLimits
}

/**
 * Has a process of its own check what references lead to. No key comes here.
 * @param token the caller's, who shares them with our service user; null for what is shared already
 * @returns a verdict on each reference for each kind that it must lead to
 * @throws KeyManagerUnavailable, IdentityUnavailable, CheckTooSlow
 */
export async function checkApart(
  { keyManager, serviceUser, inspector, limits }: CheckerOptions,
  token: string | null,
  requested: RequestedReferences,
): Promise<readonly Verdict[]> {
  const items = itemsOf(requested)
  const deadline = AbortSignal.timeout(limits.checkSeconds * 1000)
  const { url, security, connectTimeoutSeconds, answerSeconds } = keyManager
  const { ca, insecure } = security
  const attempt = async () => {
    const signedIn = await serviceUser.signedIn()
    const job = {
      keyManager: { url, security: { ca, insecure }, connectTimeoutSeconds, answerSeconds },
      token,
      serviceUser: signedIn,
      requested: {
        certificates: [...requested.certificates],
        authorities: [...requested.authorities],
        revocationLists: [...requested.revocationLists],
      },
      maxConcurrentReads: limits.maxConcurrentReads,
    }
    return runChecker(inspector, job, items.length, deadline).catch(error => {
      if (error instanceof ServiceTokenRefused) serviceUser.discard(signedIn.token)
      throw error
    })
  }
  const found = await attempt()
    .catch(error => {
      if (error instanceof ServiceTokenRefused) return attempt()
      throw error
    })
    .catch(error => {
      if (deadline.aborted) throw new CheckTooSlow(`the check took longer than ${limits.checkSeconds} s`)
      if (error instanceof ServiceTokenRefused)
        throw new KeyManagerUnavailable('the key manager does not accept the token of our service user')
      throw error
    })
  return items.flatMap(({ ref, kind }, index) => {
    const inspected = found.get(index)
    return inspected === undefined ? [] : [{ ref, kind, ...inspected }]
  })
}
