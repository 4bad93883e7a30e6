import * as z from 'zod'
import type { ApiClient } from '../../../controller/cli/api-client.js'
import { testDirectory } from '../../support/database/database.js'

const made = z.object({ id: z.string() })

export type Newcomer = {
  userId: string
  projectId: string
  /** Environment variables that make clients act as this user. */
  environment: NodeJS.ProcessEnv
}

/** A user with the role member on their own project; both have the given name. */
export async function newcomer({ request, urlOf }: ApiClient, name: string): Promise<Newcomer> {
  const password = `${name}-pw`
  const ask = (path: string, body: unknown) => request('identity', 'POST', path, body)
  const { project } = z.object({ project: made }).parse(await ask('/projects', { project: { name } }))
  const { user } = z.object({ user: made }).parse(await ask('/users', { user: { name, password } }))
  const found = await request('identity', 'GET', '/roles?name=member')
  const [role] = z.object({ roles: z.array(made).length(1) }).parse(found).roles
  await request('identity', 'PUT', `/projects/${project.id}/users/${user.id}/roles/${role!.id}`)
  const environment = {
    PATH: process.env.PATH,
    HOME: testDirectory(),
    PYTHONWARNINGS: 'ignore',
    OS_AUTH_URL: urlOf('identity'),
    OS_IDENTITY_API_VERSION: '3',
    OS_REGION_NAME: 'RegionOne',
    OS_USERNAME: name,
    OS_PASSWORD: password,
    OS_PROJECT_NAME: name,
    OS_USER_DOMAIN_NAME: 'Default',
    OS_PROJECT_DOMAIN_NAME: 'Default',
  }
  return { userId: user.id, projectId: project.id, environment }
}
