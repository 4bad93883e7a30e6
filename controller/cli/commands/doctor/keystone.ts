import { type Finding, fault, note, ok } from '../../../checks/finding.js'
import { describeSkew, MAX_SKEW_SECONDS } from '../../../identity/external/clock-skew.js'
import type { ExternalIdentity } from '../../../identity/external/external-identity.js'
import { inspectKeystone } from '../../../identity/external/inspect-keystone.js'
import type { Instance } from '../../wiring/instance.js'
import { catalogAdvice } from '../../wiring/keystone-catalog.js'

/** Checks that the external Keystone accepts Krater's user, has the same time, and points clients to Krater. */
export async function checkKeystone({ config }: Instance, external: ExternalIdentity): Promise<Finding[]> {
  const look = await inspectKeystone(external).catch((error: Error) => error)
  if (look instanceof Error) {
    return [fault('keystone', look.message, `check ${external.url} and the identity settings`)]
  }
  const skew = look.clockSkewSeconds ?? 0
  const advice = catalogAdvice(config, look.catalog)
  return [
    look.mayValidate
      ? ok('keystone', `${external.url} accepts ${look.user}`)
      : fault(
          'keystone',
          `${external.url} accepts ${look.user}, who lacks the role for validating tokens`,
          'openstack role add --user USER --project PROJECT service',
        ),
    Math.abs(skew) <= MAX_SKEW_SECONDS
      ? ok('keystone', `its clock differs by ${Math.abs(skew)} s`)
      : fault('keystone', describeSkew(skew), 'synchronise both machines with NTP'),
    ...(advice.length === 0
      ? [ok('keystone', 'its catalogue points clients here')]
      : [{ ...note('keystone', 'its catalogue does not point clients here'), remedy: advice.join('\n    ') }]),
  ]
}
