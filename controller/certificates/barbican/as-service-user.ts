import { KeyManagerUnavailable } from './errors.js'
import type { KeyManagerAnswer, KeyManagerClient, KeyManagerRequest } from './key-manager-client.js'
import type { ServiceUser } from './service-user.js'

/**
 * Sends a request as our service user, and again with a new token if the first is not accepted.
 * @throws KeyManagerUnavailable, UnusableReference, IdentityUnavailable
 */
export async function sendAsServiceUser(
  client: KeyManagerClient,
  serviceUser: ServiceUser,
  request: Omit<KeyManagerRequest, 'token'>,
  signal: AbortSignal,
): Promise<KeyManagerAnswer> {
  const { token } = await serviceUser.signedIn()
  const answer = await client.send({ ...request, token }, signal)
  if (answer.status !== 401) return answer
  serviceUser.discard(token)
  const { token: renewed } = await serviceUser.signedIn()
  const again = await client.send({ ...request, token: renewed }, signal)
  if (again.status === 401)
    throw new KeyManagerUnavailable('the key manager does not accept the token of our service user')
  return again
}
