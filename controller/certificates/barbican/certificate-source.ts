import { IdentityUnavailable } from '../../identity/external/identity-unavailable.js'
import {
  CHECK_LIMITS,
  type CheckLimits,
  CheckTooSlow,
  checkUnavailable,
  createCheckTurns,
} from '../../inspection/checks.js'
import type { Logger } from '../../log/log.js'
import { badReferencesIn, type CertificateSource } from '../certificate-source.js'
import { type CheckerOptions, checkApart } from './checker/check.js'
import { KeyManagerUnavailable } from './errors.js'

export type BarbicanOptions = Omit<CheckerOptions, 'limits'> & { limits?: CheckLimits; log: Logger }

/** Certificates in a key manager with Barbican's API, over HTTP. A process of its own reads them. */
export function createBarbicanSource({ limits = CHECK_LIMITS, log, ...checker }: BarbicanOptions): CertificateSource {
  const turns = createCheckTurns(limits)
  return {
    check: async ({ token, project, user }, _, requested) => {
      const verdicts = await turns([project, user], requested, () =>
        checkApart({ ...checker, limits }, token, requested),
      ).catch(error => {
        if (!isAway(error)) throw error
        log.warn(`Cannot check certificate references: ${error.message}`)
        throw checkUnavailable('The key manager does not answer, so certificate references cannot be checked')
      })
      return badReferencesIn(verdicts)
    },
    close: () => undefined,
  }
}

/** Whether nothing is known of the references, for the moment. */
const isAway = (error: unknown): error is Error =>
  [KeyManagerUnavailable, IdentityUnavailable, CheckTooSlow].some(kind => error instanceof kind)
