import * as z from 'zod'
import { flag, serviceUrl } from '../../options/values.js'

const text = z.string().min(1)
const secret = text.meta({ secret: true })
const seconds = z.coerce.number().positive().max(300)

/** How Krater validates tokens at an external Keystone. */
export const externalIdentityOptions = {
  external_url: serviceUrl('https://keystone.example:5000/v3')
    .optional()
    .describe('URL of an external Keystone to validate tokens at; Krater then serves no identity API'),
  username: text.optional().describe('Krater’s service user at the external Keystone; needs the role service or admin'),
  password: secret.optional(),
  user_domain_name: text.default('Default'),
  project_name: text.default('service'),
  project_domain_name: text.default('Default'),
  application_credential_id: text
    .optional()
    .describe('Application credential of the service user, instead of its name and password'),
  application_credential_secret: secret.optional(),
  ca_file: text
    .optional()
    .describe(
      'PEM file with the CA certificates that Keystone’s certificate is checked against; default: the public CAs',
    ),
  client_certificate_file: text.optional().describe('PEM file with the client certificate to present to Keystone'),
  client_key_file: text.optional(),
  insecure: flag.default(false).describe('Accept any certificate of Keystone; for test environments only'),
  token_cache_seconds: z.coerce
    .number()
    .min(0)
    .max(86_400)
    .default(300)
    .describe('Seconds to cache a validated token: a revocation takes effect within this time'),
  connect_timeout: seconds.default(5),
  request_timeout: seconds.default(10).describe('Seconds to wait for an answer from Keystone, retries included'),
}

export type ExternalIdentitySettings = z.output<z.ZodObject<typeof externalIdentityOptions>>

const ONLY_WITH_URL = [
  'username',
  'password',
  'application_credential_id',
  'application_credential_secret',
  'ca_file',
  'client_certificate_file',
  'client_key_file',
] as const

/** Settings that require each other. */
const PAIRS = [
  ['username', 'password'],
  ['application_credential_id', 'application_credential_secret'],
  ['client_certificate_file', 'client_key_file'],
] as const

/** Rejects incomplete or contradictory settings and names the setting. */
export function checkExternalIdentity(
  settings: ExternalIdentitySettings,
  context: { addIssue: (issue: { code: 'custom'; path: string[]; message: string }) => void },
): void {
  const fault = (name: keyof ExternalIdentitySettings, message: string) =>
    context.addIssue({ code: 'custom', path: [name], message })

  if (settings.external_url === undefined) {
    const useless = ONLY_WITH_URL.find(name => settings[name] !== undefined)
    if (useless !== undefined) fault('external_url', `the URL of a Keystone, since identity.${useless} is set`)
    return
  }
  for (const pair of PAIRS) {
    const missing = pair.find(name => settings[name] === undefined)
    const present = pair.find(name => settings[name] !== undefined)
    if (missing !== undefined && present !== undefined) fault(missing, `given with identity.${present}`)
  }
  const isPassword = settings.username !== undefined || settings.password !== undefined
  const isCredential =
    settings.application_credential_id !== undefined || settings.application_credential_secret !== undefined
  if (isPassword && isCredential) {
    fault('username', 'left out, since identity.application_credential_id is set')
  }
  if (!isPassword && !isCredential) {
    fault(
      'username',
      'the user by which Krater validates tokens at identity.external_url, with identity.password (or identity.application_credential_id and identity.application_credential_secret)',
    )
  }
  if (!settings.external_url.startsWith('https:')) {
    const useless = (['ca_file', 'client_certificate_file', 'client_key_file'] as const).find(
      name => settings[name] !== undefined,
    )
    if (useless !== undefined) fault(useless, 'left out, since identity.external_url is not https')
  }
}
