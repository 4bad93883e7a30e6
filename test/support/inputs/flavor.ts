import type { ApiClient } from '../../../controller/cli/api-client.js'

/** Makes a flavor with its profile. @param admin a client with an administrator's rights. @returns the flavor's id */
export async function createFlavor(admin: ApiClient, name: string, data: Record<string, unknown>): Promise<string> {
  const create = async <Kind extends string>(kind: Kind, object: Record<string, unknown>): Promise<string> => {
    const answer = await admin.request('load-balancer', 'POST', `/v2/lbaas/${kind}s`, { [kind]: { name, ...object } })
    return (answer as Record<Kind, { id: string }>)[kind].id
  }
  const profile = { provider_name: 'amphora', flavor_data: JSON.stringify(data) }
  return create('flavor', { flavor_profile_id: await create('flavorprofile', profile) })
}
