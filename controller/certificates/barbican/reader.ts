import type { Reader } from '../../../x509/material/load.js'
import { Unusable } from '../../../x509/material/material.js'
import { pathOf, type Target } from '../../../x509/material/reference.js'
import { sendAsServiceUser } from './as-service-user.js'
import type { KeyManagerClient, KeyManagerRequest } from './key-manager-client.js'
import { aclSchema, partsIn, readAnswer, secretSchema } from './resources.js'
import type { ServiceUser } from './service-user.js'

export type ReaderOptions = {
  client: KeyManagerClient
  serviceUser: ServiceUser
  /** The caller's; null reads as our service user alone, what callers have shared with it before. */
  token: string | null
  signal: AbortSignal
}

/** The same text for both, so a caller cannot tell another project's objects from missing ones. */
const ABSENT = 'it does not exist or you may not use it'
const NOT_SHARED = 'it does not exist, or the load balancer service may not read it any more'

/**
 * Reads for one request: first with the caller's rights, then as our service user. The reader throws
 * KeyManagerUnavailable and IdentityUnavailable.
 */
export function createReader({ client, serviceUser, token, signal }: ReaderOptions): Reader {
  const asServiceUser = async (
    request: Omit<KeyManagerRequest, 'token' | 'method'>,
    otherwise: string,
  ): Promise<Buffer> => {
    const { status, bytes } = await sendAsServiceUser(client, serviceUser, { ...request, method: 'GET' }, signal)
    if (status !== 200) throw new Unusable(otherwise)
    return bytes
  }
  const share = token === null ? null : createSharing(client, serviceUser, token, signal)

  return {
    payload: async target => {
      const path = pathOf(target)
      const record = share === null ? await asServiceUser({ path }, NOT_SHARED) : await share(target)
      const { content_types: types } = readAnswer(secretSchema, record, path)
      if (types?.default === undefined) throw new Unusable('it has no payload')
      return asServiceUser(
        { path: `${path}/payload`, accept: types.default },
        'the load balancer service cannot read its payload',
      )
    },
    parts: async target => {
      const path = pathOf(target)
      await share?.(target)
      const record = await asServiceUser(
        { path },
        share === null ? NOT_SHARED : 'the load balancer service cannot read it',
      )
      return partsIn(record, path)
    },
  }
}

/**
 * Adds the service user to ACLs.
 * @returns a function that answers with the record. It throws Unusable unless the caller may read it and change its ACL
 */
function createSharing(
  client: KeyManagerClient,
  serviceUser: ServiceUser,
  token: string,
  signal: AbortSignal,
): (target: Target) => Promise<Buffer> {
  const asCaller = async (request: Omit<KeyManagerRequest, 'token'>): Promise<Buffer> => {
    const { status, bytes } = await client.send({ ...request, token }, signal)
    if (status === 401) throw new Unusable('the key manager does not accept your token')
    if (status !== 200) throw new Unusable(ABSENT)
    return bytes
  }
  return async target => {
    const path = pathOf(target)
    const record = await asCaller({ method: 'GET', path })
    const { read } = readAnswer(aclSchema, await asCaller({ method: 'GET', path: `${path}/acl` }), path)
    const { userId } = await serviceUser.signedIn()
    if (!read.users.includes(userId)) {
      const body = { read: { 'project-access': read['project-access'], users: [...read.users, userId] } }
      await asCaller({ method: 'PUT', path: `${path}/acl`, body })
    }
    return record
  }
}

/** The secrets of a certificate container, as our service user. @throws Unusable, KeyManagerUnavailable, IdentityUnavailable */
export async function readParts(
  client: KeyManagerClient,
  serviceUser: ServiceUser,
  container: Target,
  signal: AbortSignal,
): Promise<Target[]> {
  const reader = createReader({ client, serviceUser, token: null, signal })
  return [...(await reader.parts(container)).values()]
}
