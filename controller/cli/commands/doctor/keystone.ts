import { type Finding, fault, note, ok } from '../../../checks/finding.js'
import { MOST_SKEW_SECONDS, skewWords } from '../../../identity/external/clock-skew.js'
import type { ExternalIdentity } from '../../../identity/external/external-identity.js'
import { lookAtKeystone } from '../../../identity/external/look.js'
import type { Instance } from '../../wiring/instance.js'
import { catalogAdvice } from '../../wiring/keystone-catalog.js'

/** Checks that the external Keystone accepts our user, keeps the same time, and leads clients to us. */
export async function checkKeystone({ config }: Instance, external: ExternalIdentity): Promise<Finding[]> {
  const look = await lookAtKeystone(external).catch((error: Error) => error)
  if (look instanceof Error) {
    return [fault('keystone', look.message, `check ${external.url} and the settings of the group identity`)]
  }
  const skew = look.clockSkewSeconds ?? 0
  const advice = catalogAdvice(config, look.catalog)
  return [
    look.mayValidate
      ? ok('keystone', `${external.url} takes ${look.user}`)
      : fault(
          'keystone',
          `${external.url} takes ${look.user}, but without the role that validating tokens needs`,
          'openstack role add --user USER --project PROJECT service',
        ),
    Math.abs(skew) <= MOST_SKEW_SECONDS
      ? ok('keystone', `its clock is ${Math.abs(skew)} s apart`)
      : fault('keystone', skewWords(skew), 'let both machines follow NTP'),
    ...(advice.length === 0
      ? [ok('keystone', 'its catalogue leads clients here')]
      : [{ ...note('keystone', 'its catalogue does not lead clients here'), remedy: advice.join('\n    ') }]),
  ]
}
