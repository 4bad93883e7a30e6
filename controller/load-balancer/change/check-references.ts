import type { RequestedReferences } from '../../certificates/certificate-source.js'
import { badRequest } from '../../http/errors.js'
import type { Caller } from '../../identity/caller.js'
import { outsideTurn } from '../../process/turn.js'
import { checkMembers, checkSubnets } from '../objects/members/rules.js'
import type { Service } from '../schema/service.js'
import { newReferences } from '../tree/certificate-references.js'
import type { NewObjects } from '../tree/new-objects.js'

/** Who asks, with the token for requests to other services in its name. */
export type Asker = { caller: Caller; token: string }

/**
 * Checks the addresses of new members, and looks up what new objects refer to in other services, each thing once, with the caller's rights.
 * @throws ApiError 400 for what does not exist or the caller cannot use, 503 when a service cannot tell
 */
export async function checkReferences(
  { network, certificates, config }: Pick<Service, 'network' | 'certificates' | 'config'>,
  { caller, token }: Asker,
  { pools, listeners }: NewObjects,
): Promise<void> {
  const members = pools.flatMap(pool => pool.members.map(({ values }) => values))
  await checkMembers(config, members)
  await checkSubnets(network, caller, members)
  const desired = newReferences(
    listeners.map(({ values }) => values),
    pools.map(({ values }) => values),
  )
  if (desired !== null) await checkCertificates({ certificates }, { caller, token }, desired)
}

/**
 * Looks up certificates and what belongs to them.
 * @throws ApiError 400 that names all that are not good, 503 when it cannot be told
 */
export async function checkCertificates(
  { certificates }: Pick<Service, 'certificates'>,
  { caller, token }: Asker,
  desired: RequestedReferences,
): Promise<void> {
  const asker = { token, project: caller.project?.id ?? '', user: caller.user.id }
  const bad = await outsideTurn(() => certificates.check(asker, desired))
  if (bad.length === 0) return
  const listed = bad.map(({ ref, reason }) => `${ref} (${reason})`).join(', ')
  throw badRequest(`Could not retrieve certificate: ${listed}`)
}
