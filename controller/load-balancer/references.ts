import type { Caller } from '../identity/caller.js'
import { checkSubnets } from './members/rules.js'
import type { NewObjects } from './new-objects.js'
import type { Service } from './routes.js'

/**
 * Looks up what new objects refer to in other services, each thing once, with the caller's rights.
 * @throws ApiError 400 for what does not exist or the caller cannot see
 */
export async function checkReferences(
  { network }: Pick<Service, 'network'>,
  caller: Caller,
  { pools }: Pick<NewObjects, 'pools'>,
): Promise<void> {
  const members = pools.flatMap(pool => pool.members)
  await checkSubnets(
    network,
    caller,
    members.map(({ values }) => values),
  )
}
