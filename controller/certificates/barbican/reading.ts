import { BadTarget, KeyManagerAway } from './key-manager-away.js'
import type { KeyManagerAnswer, KeyManagerClient, KeyManagerRequest } from './key-manager-client.js'
import { pathOf, type Target } from './reference.js'
import { aclSchema, containerSchema, readAnswer, secretSchema } from './resources.js'
import type { ServiceUser } from './service-user.js'

/** What one request reads: with its caller's rights, and only then as our own service user. */
export type Reading = {
  /** The payload of a secret. @throws BadTarget, KeyManagerAway, IdentityAway */
  payload: (target: Target) => Promise<Buffer>
  /** The secrets of a certificate container by their names. @throws BadTarget, KeyManagerAway, IdentityAway */
  parts: (target: Target) => Promise<ReadonlyMap<string, Target>>
}

export type ReadingOptions = {
  client: KeyManagerClient
  serviceUser: ServiceUser
  /** Of the caller. */
  token: string
  signal: AbortSignal
}

/** The same for what is not there and for what others have: a caller learns nothing about either. */
const ABSENT = 'there is none that you may use'

export function createReading({ client, serviceUser, token, signal }: ReadingOptions): Reading {
  const asCaller = async (request: Omit<KeyManagerRequest, 'token'>): Promise<Buffer> => {
    const { status, bytes } = await client.send({ ...request, token }, signal)
    if (status === 401) throw new BadTarget('your token is not good for the key manager')
    if (status !== 200) throw new BadTarget(ABSENT)
    return bytes
  }

  /** @returns the record, which the caller may see @throws BadTarget unless the caller may use it and the service user read it */
  const shared = async (target: Target): Promise<Buffer> => {
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

  const asServiceUser = async (request: Omit<KeyManagerRequest, 'token'>): Promise<KeyManagerAnswer> => {
    const { token: own } = await serviceUser.signedIn()
    const answer = await client.send({ ...request, token: own }, signal)
    if (answer.status !== 401) return answer
    serviceUser.discard(own)
    const { token: renewed } = await serviceUser.signedIn()
    const again = await client.send({ ...request, token: renewed }, signal)
    if (again.status === 401) throw new KeyManagerAway('it does not accept the token of our own user')
    return again
  }

  return {
    payload: async target => {
      const path = pathOf(target)
      const { content_types: types } = readAnswer(secretSchema, await shared(target), path)
      if (types?.default === undefined) throw new BadTarget('it has no payload')
      const answer = await asServiceUser({ method: 'GET', path: `${path}/payload`, accept: types.default })
      if (answer.status !== 200) throw new BadTarget('the load balancer service cannot read its payload')
      return answer.bytes
    },
    parts: async target => {
      const path = pathOf(target)
      await shared(target)
      const answer = await asServiceUser({ method: 'GET', path })
      if (answer.status !== 200) throw new BadTarget('the load balancer service cannot read it')
      const { type, secret_refs: refs } = readAnswer(containerSchema, answer.bytes, path)
      if (type !== 'certificate') throw new BadTarget('it is no container of type certificate')
      return new Map(refs.map(({ name, secret_ref }) => [name ?? '', partOf(secret_ref)]))
    },
  }
}

/** @throws KeyManagerAway for what is no reference: the key manager wrote it */
function partOf(ref: string): Target {
  const id = /\/([0-9a-f-]{36})\/?$/i.exec(ref)?.[1]
  if (id === undefined) throw new KeyManagerAway('a container refers to something that is no secret')
  return { kind: 'secrets', id: id.toLowerCase() }
}
