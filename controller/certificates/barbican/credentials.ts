import { randomBytes } from 'node:crypto'
import * as z from 'zod'
import type { Connection, KeystoneRequest } from '../../identity/external/connection.js'
import { IdentityUnavailable } from '../../identity/external/identity-unavailable.js'
import type { ServiceUser } from './service-user.js'

/** The secret is shown once, and kept nowhere but in memory. `rules` are the ids of its access rules. */
export type ApplicationCredential = { id: string; secret: string; rules: readonly string[] }

/** Application credentials of our service user. Every call may throw IdentityUnavailable. */
export type Credentials = {
  /** One that may read only these paths of the key manager. @param owner what it is for; names it */
  create: (owner: string, paths: readonly string[], seconds: number) => Promise<ApplicationCredential>
  /** No error if it is gone. */
  end: (credential: Omit<ApplicationCredential, 'secret'>) => Promise<void>
  /** Those of an owner; of all owners without one. */
  list: (owner?: string) => Promise<(Omit<ApplicationCredential, 'secret'> & { isExpired: boolean })[]>
}

const PREFIX = 'krater-'

const recordSchema = z.object({
  id: z.string(),
  name: z.string(),
  expires_at: z.string().nullish(),
  access_rules: z.array(z.object({ id: z.string() })).nullish(),
})
const createdSchema = z.object({ application_credential: recordSchema.extend({ secret: z.string() }) })
const listSchema = z.object({ application_credentials: z.array(recordSchema) })

export function createCredentials(connection: Connection, serviceUser: ServiceUser): Credentials {
  const send = async (request: Omit<KeystoneRequest, 'headers'>): Promise<{ status: number; body: unknown }> => {
    const { token, userId } = await serviceUser.signedIn()
    const answer = await connection.send({
      ...request,
      path: `/users/${encodeURIComponent(userId)}${request.path}`,
      headers: { 'X-Auth-Token': token },
    })
    if (answer.status === 401) serviceUser.discard(token)
    return answer
  }
  return {
    create: async (owner, paths, seconds) => {
      const body = {
        application_credential: {
          name: `${PREFIX}${owner}-${randomBytes(4).toString('hex')}`,
          description: 'Lets amphorae read the certificates of their load balancer',
          expires_at: new Date(Date.now() + seconds * 1000).toISOString().replace('Z', '000Z'),
          unrestricted: false,
          access_rules: paths.map(path => ({ service: 'key-manager', method: 'GET', path })),
        },
      }
      const answer = await send({ method: 'POST', path: '/application_credentials', body })
      const created = createdSchema.safeParse(answer.body)
      if (answer.status === 201 && created.success) {
        const { id, secret, access_rules } = created.data.application_credential
        return { id, secret, rules: (access_rules ?? []).map(rule => rule.id) }
      }
      throw new IdentityUnavailable(
        answer.status === 403
          ? 'Keystone does not let the service user create application credentials: let it sign in with a password, or with an unrestricted application credential'
          : `Keystone answered the request for an application credential with status ${answer.status}`,
      )
    },
    end: async ({ id, rules }) => {
      await send({ method: 'DELETE', path: `/application_credentials/${id}` })
      // Keystone keeps rules for later credentials, and refuses to delete those that others have.
      for (const rule of rules) await send({ method: 'DELETE', path: `/access_rules/${rule}` })
    },
    list: async owner => {
      const answer = await send({ method: 'GET', path: '/application_credentials' })
      const listed = listSchema.safeParse(answer.body)
      if (answer.status !== 200 || !listed.success)
        throw new IdentityUnavailable(
          `Keystone answered the list of application credentials with status ${answer.status}`,
        )
      return listed.data.application_credentials
        .filter(({ name }) => name.startsWith(owner === undefined ? PREFIX : `${PREFIX}${owner}-`))
        .map(({ id, access_rules, expires_at }) => ({
          id,
          rules: (access_rules ?? []).map(rule => rule.id),
          isExpired: typeof expires_at === 'string' && Date.parse(`${expires_at.replace(/Z$/, '')}Z`) < Date.now(),
        }))
    },
  }
}
