import { z } from 'zod'
import { notFoundSchema } from './ask-keystone.js'
import { type Connection, connectToKeystone } from './connection.js'
import type { ExternalIdentity } from './external-identity.js'
import { IdentityAway } from './identity-away.js'
import { credentialsWords, signInAtKeystone } from './sign-in.js'

const projectSchema = z.object({ project: z.object({ id: z.string() }) })

/**
 * Which of these projects Keystone still has, asked for one by one.
 * @throws ServiceUserRefused when Keystone does not take our own user's credentials
 * @throws IdentityAway when Keystone does not tell about one of them, or our own user may not know
 */
export async function standingProjects(identity: ExternalIdentity, ids: readonly string[]): Promise<Set<string>> {
  const connection = connectToKeystone(identity)
  try {
    const { token, document } = await signInAtKeystone(connection, identity.credentials)
    const own = document.project?.id
    // Who does not find the project on which it has just signed in asks in the wrong place.
    if (own !== undefined && !(await stands(connection, identity, token, own))) {
      throw new IdentityAway(`Keystone at ${identity.url} does not show the project of our own user`)
    }
    const standing = new Set<string>()
    for (const id of ids) if (await stands(connection, identity, token, id)) standing.add(id)
    return standing
  } finally {
    connection.close()
  }
}

async function stands(
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
    throw new IdentityAway(
      `Keystone at ${url} does not tell ${credentialsWords(credentials)} which projects there are: that takes the role admin`,
    )
  }
  throw new IdentityAway(`Keystone at ${url} answered the question for a project by ${answer.status}`)
}
