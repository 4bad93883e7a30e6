import * as z from 'zod'
import { notFoundSchema } from './ask-keystone.js'
import { type Connection, connectToKeystone } from './connection.js'
import type { ExternalIdentity } from './external-identity.js'
import { IdentityUnavailable } from './identity-unavailable.js'
import { describeCredentials, signInAtKeystone } from './sign-in.js'

const projectSchema = z.object({ project: z.object({ id: z.string() }) })

/**
 * The projects that still exist at Keystone. Queries them one by one.
 * @throws ServiceUserRefused if Keystone rejects the service user's credentials
 * @throws IdentityUnavailable if Keystone gives no verdict on one of them, or the service user may not see it
 */
export async function findExistingProjects(identity: ExternalIdentity, ids: readonly string[]): Promise<Set<string>> {
  const connection = connectToKeystone(identity)
  try {
    const { token, document } = await signInAtKeystone(connection, identity.credentials)
    const own = document.project?.id
    // If even the project of this sign-in is missing, the other answers cannot be trusted either.
    if (own !== undefined && !(await exists(connection, identity, token, own))) {
      throw new IdentityUnavailable(`Keystone at ${identity.url} does not show the service user its own project`)
    }
    const existing = new Set<string>()
    for (const id of ids) if (await exists(connection, identity, token, id)) existing.add(id)
    return existing
  } finally {
    connection.close()
  }
}

async function exists(
  connection: Connection,
  { url, credentials }: ExternalIdentity,
  token: string,
  id: string,
): Promise<boolean> {
  const answer = await connection.send({
    method: 'GET',
    path: `/projects/${encodeURIComponent(id)}`,
    headers: { 'X-Auth-Token': token },
  })
  if (answer.status === 404 && notFoundSchema.safeParse(answer.body).success) return false
  const project = projectSchema.safeParse(answer.body)
  if (answer.status === 200 && project.data?.project.id === id) return true
  if (answer.status === 403) {
    throw new IdentityUnavailable(
      `Keystone at ${url} does not show projects to ${describeCredentials(credentials)}. Give that user the role admin`,
    )
  }
  throw new IdentityUnavailable(`Keystone at ${url} answered a request for a project with status ${answer.status}`)
}
