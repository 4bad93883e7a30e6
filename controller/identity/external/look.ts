import { clockSkewSeconds } from './clock-skew.js'
import { connectToKeystone } from './connection.js'
import type { ExternalIdentity } from './external-identity.js'
import { credentialsWords, signInAtKeystone, VALIDATING_ROLES } from './sign-in.js'
import type { KeystoneToken } from './token-document.js'

export type CatalogEntry = NonNullable<KeystoneToken['catalog']>[number]

/** What our own user sees at a Keystone. */
export type KeystoneView = {
  /** Of the project on which our user signs in. */
  projectId: string | null
  /** False when it has none of the roles that Keystone asks for by default. */
  mayValidate: boolean
  /** By which Keystone's clock is ahead of ours; null when it does not tell. */
  clockSkewSeconds: number | null
  catalog: CatalogEntry[]
  /** Which user that is, and by which settings. */
  user: string
}

/**
 * Signs in once, changing nothing.
 * @throws ServiceUserRefused when Keystone does not take the credentials
 * @throws IdentityAway when it does not answer as it should
 */
export async function lookAtKeystone(identity: ExternalIdentity): Promise<KeystoneView> {
  const connection = connectToKeystone(identity)
  try {
    const { document, date } = await signInAtKeystone(connection, identity.credentials, { withCatalog: true })
    return {
      projectId: document.project?.id ?? null,
      mayValidate: document.roles?.some(({ name }) => VALIDATING_ROLES.includes(name.toLowerCase())) ?? false,
      clockSkewSeconds: clockSkewSeconds(date),
      catalog: document.catalog ?? [],
      user: credentialsWords(identity.credentials),
    }
  } finally {
    connection.close()
  }
}
