import type { TransportSecurity } from '../../http/exchange.js'

/** How our services sign in at Keystone. */
export type ServiceCredentials =
  | {
      method: 'password'
      username: string
      password: string
      userDomainName: string
      projectName: string
      projectDomainName: string
    }
  | { method: 'application_credential'; id: string; secret: string }

/** A Keystone that somebody else runs. */
export type ExternalIdentity = {
  /** Ends in /v3. */
  url: string
  credentials: ServiceCredentials
  security: TransportSecurity
  /** How long a validated token is used without asking again: the bound on how late a revocation is seen. */
  tokenCacheSeconds: number
  connectTimeoutSeconds: number
  /** For one answer, whatever number of tries it takes. */
  requestTimeoutSeconds: number
}
