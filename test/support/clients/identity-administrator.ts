import type { IdentityServer, Reply } from '../worlds/identity.js'

/** The administrator's actions on an identity service's API. */
export async function administratorOf({ call, tokenOf, projects }: IdentityServer) {
  const token = await tokenOf('admin', 'admin')
  const as = (operation: string, body?: unknown): Promise<Reply> => call(operation, { token, body })
  /** The id of the one thing with this name: `idOf('roles', 'member')`. */
  const idOf = async (plural: string, name: string): Promise<string> => {
    const [found] = (await as(`GET /v3/${plural}?name=${name}`)).list(plural)
    return String(found!.id)
  }
  const roleId = (name: string) => idOf('roles', name)
  return {
    token,
    as,
    statusOf: async (operation: string, body?: unknown) => (await as(operation, body)).status,
    idOf,
    roleId,
    namesIn: async (operation: string, plural: string) => (await as(operation)).list(plural).map(item => item.name),
    /** A new user, with role member on project demo unless told otherwise. */
    makeUser: async (name: string, { enabled = true, grant = true } = {}): Promise<string> => {
      const made = await as('POST /v3/users', { user: { name, password: `${name}-pw`, enabled } })
      const id = made.text('user.id')
      if (grant) await as(`PUT /v3/projects/${projects.demo}/users/${id}/roles/${await roleId('member')}`)
      return id
    },
  }
}
