import { clockSkewSeconds } from './clock-skew.js'
import { connectToKeystone } from './connection.js'
import type { ExternalIdentity } from './external-identity.js'
import { describeCredentials, signInAtKeystone, VALIDATING_ROLES } from './sign-in.js'
import type { KeystoneToken } from './token-document.js'

export type CatalogEntry = NonNullable<KeystoneToken['catalog']>[number]

/** A Keystone as the service user sees it. */
export type KeystoneView = {
  /** The project on which the service user signs in. */
  projectId: string | null
  /** Whether the service user has one of the roles that Keystone requires by default. */
  mayValidate: boolean
  /** Seconds by which Keystone's clock is ahead of this machine's; null if it sends no date. */
  clockSkewSeconds: number | null
  catalog: CatalogEntry[]
  /** Describes the service user and the settings that define it. */
  user: string
}

/**
 * Signs in once and changes nothing.
 * @throws ServiceUserRefused if Keystone rejects the credentials
 * @throws IdentityUnavailable if it does not answer as it should
 */
export async function inspectKeystone(identity: ExternalIdentity): Promise<KeystoneView> {
  const connection = connectToKeystone(identity)
  try {
    const { document, date } = await signInAtKeystone(connection, identity.credentials, { withCatalog: true })
    return {
      projectId: document.project?.id ?? null,
      mayValidate: document.roles?.some(({ name }) => VALIDATING_ROLES.includes(name.toLowerCase())) ?? false,
      clockSkewSeconds: clockSkewSeconds(date),
      catalog: document.catalog ?? [],
      user: describeCredentials(identity.credentials),
    }
  } finally {
    connection.close()
  }
}
