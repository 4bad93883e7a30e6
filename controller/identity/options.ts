import * as z from 'zod'
import { apiAddress, seconds } from '../options/values.js'
import { checkExternalIdentity, externalIdentityOptions } from './external/options.js'
import { loginOptions } from './login/options.js'

const { host, port, trusted_proxies } = apiAddress(5000)

/** Settings of the identity service, embedded or external. */
export const identityOptions = z
  .strictObject({
    host,
    port,
    public_url: z.url().optional().describe('URL in the catalogue, if it is not http://host:port/v3'),
    trusted_proxies,
    token_expiration: seconds.default(3600),
    ...loginOptions,
    ...externalIdentityOptions,
  })
  .superRefine(checkExternalIdentity)
  .prefault({})

export type IdentitySettings = z.output<typeof identityOptions>
