import type { Reader } from '../../../x509/material/load.js'
import { Unusable } from '../../../x509/material/material.js'
import { pathOf, type Target } from '../../../x509/material/reference.js'
import { sendAsServiceUser } from './as-service-user.js'
import type { KeyManagerAnswer, KeyManagerClient, KeyManagerRequest } from './key-manager-client.js'
import { aclSchema, containerSchema, partOf, readAnswer, secretSchema } from './resources.js'
import type { ServiceUser } from './service-user.js'

export type ReaderOptions = {
  client: KeyManagerClient
  serviceUser: ServiceUser
  /** The caller's. */
  token: string
  signal: AbortSignal
}

/** The same text for both, so a caller cannot tell another project's objects from missing ones. */
const ABSENT = 'it does not exist or you may not use it'

/**
 * Reads for one request: first with the caller's rights, then as our service user. The reader throws
 * KeyManagerUnavailable and IdentityUnavailable.
 */
export function createReader({ client, serviceUser, token, signal }: ReaderOptions): Reader {
  const asCaller = async (request: Omit<KeyManagerRequest, 'token'>): Promise<Buffer> => {
    const { status, bytes } = await client.send({ ...request, token }, signal)
    if (status === 401) throw new Unusable('the key manager does not accept your token')
    if (status !== 200) throw new Unusable(ABSENT)
    return bytes
  }

  /**
   * Adds the service user to the ACL.
   * @returns the record
   * @throws Unusable unless the caller may read it and change its ACL
   */
  const share = async (target: Target): Promise<Buffer> => {
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

  const asServiceUser = (request: Omit<KeyManagerRequest, 'token'>): Promise<KeyManagerAnswer> =>
    sendAsServiceUser(client, serviceUser, request, signal)

  return {
    payload: async target => {
      const path = pathOf(target)
      const { content_types: types } = readAnswer(secretSchema, await share(target), path)
      if (types?.default === undefined) throw new Unusable('it has no payload')
      const answer = await asServiceUser({ method: 'GET', path: `${path}/payload`, accept: types.default })
      if (answer.status !== 200) throw new Unusable('the load balancer service cannot read its payload')
      return answer.bytes
    },
    parts: async target => {
      const path = pathOf(target)
      await share(target)
      const answer = await asServiceUser({ method: 'GET', path })
      if (answer.status !== 200) throw new Unusable('the load balancer service cannot read it')
      const { type, secret_refs: refs } = readAnswer(containerSchema, answer.bytes, path)
      if (type !== 'certificate') throw new Unusable('it is not a container of type certificate')
      return new Map(refs.map(({ name, secret_ref }) => [name ?? '', partOf(secret_ref)]))
    },
  }
}
