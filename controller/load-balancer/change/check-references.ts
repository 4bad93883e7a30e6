import type { RequestedReferences } from '../../../x509/material/reference.js'
import { badRequest } from '../../http/errors.js'
import type { Caller } from '../../identity/caller.js'
import { outsideTurn } from '../../process/turn.js'
import { checkMembers, checkSubnets } from '../objects/members/rules.js'
import type { Service } from '../schema/service.js'
import { newReferences } from '../tree/certificate-references.js'
import { membersOf, type NewObjects } from '../tree/new-objects.js'

/** The caller of the API, with its token for requests to other services on its behalf. */
export type ApiCaller = { caller: Caller; token: string }

/**
 * Checks the addresses of new members, and looks up each subnet and certificate that new objects refer to once,
 * with the caller's rights.
 * @param loadBalancerId of the load balancer, which may not exist yet
 * @throws ApiError 400 when a reference does not exist or the caller cannot use it, 503 when a service cannot
 *   answer
 */
export async function checkReferences(
  { network, certificates, config }: Pick<Service, 'network' | 'certificates' | 'config'>,
  { caller, token }: ApiCaller,
  loadBalancerId: string,
  { pools, listeners }: NewObjects,
): Promise<void> {
  const members = membersOf({ pools })
  await checkMembers({ config, network }, members)
  await checkSubnets(network, caller, members)
  const desired = newReferences(
    listeners.map(({ values }) => values),
    pools.map(({ values }) => values),
  )
  if (desired !== null) await checkCertificates({ certificates }, { caller, token }, loadBalancerId, desired)
}

/**
 * Looks up certificates, certificate authorities and revocation lists.
 * @throws ApiError 400 that lists every invalid reference, 503 when the key manager cannot answer
 */
export async function checkCertificates(
  { certificates }: Pick<Service, 'certificates'>,
  { caller, token }: ApiCaller,
  loadBalancerId: string,
  desired: RequestedReferences,
): Promise<void> {
  const owner = { token, project: caller.project?.id ?? '', user: caller.user.id }
  const invalid = await outsideTurn(() => certificates.check(owner, loadBalancerId, desired))
  if (invalid.length === 0) return
  const listed = invalid.map(({ ref, reason }) => `${ref} (${reason})`).join(', ')
  throw badRequest(`Could not retrieve certificate: ${listed}`)
}
