import * as z from 'zod'
import { flag, listOf } from '../../../options/values.js'
import { argvSetting, atMostOne, secretSourceSettings } from '../../crypto/secret-settings.js'
import type { CaService } from '../ca-backend.js'
import type { NamePolicy } from '../internal/name-policy.js'

export const CHALLENGE_TYPES = ['http-01', 'tls-alpn-01', 'dns-01'] as const

export type ChallengeType = (typeof CHALLENGE_TYPES)[number]

/** Settings of an external CA that speaks ACME (RFC 8555). */
export const acmeOptions = z
  .strictObject({
    directory_url: z
      .url({ protocol: /^https$/, error: 'an https URL' })
      .optional()
      .describe('Directory of the CA; without it there is no ACME'),
    ca_file: z
      .string()
      .min(1)
      .optional()
      .describe('PEM file with the CAs that sign the directory’s own certificate; default: the public ones'),
    contact: z.email().optional().describe('E-mail address of the account'),
    terms_of_service_agreed: flag
      .default(false)
      .describe('Whether you agree to the terms of service that the directory names'),
    eab_key_id: z.string().min(1).optional().describe('Key id of the external account binding'),
    ...secretSourceSettings('eab_hmac_key', 'the HMAC key of the external account binding, in base64url', ''),
    orders_per_day: z.coerce
      .number()
      .int()
      .min(1)
      .max(1_000_000)
      .default(100)
      .describe('Maximum orders of a project at the CA in 24 hours, because all projects share the account'),
    challenges: listOf(z.enum(CHALLENGE_TYPES))
      .default([...CHALLENGE_TYPES])
      .describe('Challenges to use, the preferred first; wildcards always need dns-01'),
    dns_hook: argvSetting
      .optional()
      .describe('Program and arguments that publish and withdraw the records of dns-01; run without a shell'),
    dns_hook_timeout: z.coerce
      .number()
      .int()
      .min(1)
      .max(600)
      .default(120)
      .describe('Seconds that the hook may take; it ends when the record is being served'),
  })
  .refine(given => atMostOne(given.eab_hmac_key_file, given.eab_hmac_key_variable, given.eab_hmac_key_command), {
    error: 'limited to one source of the HMAC key: a file, a variable or a command',
  })
  .refine(
    given =>
      (given.eab_key_id === undefined) ===
      (given.eab_hmac_key_file === undefined &&
        given.eab_hmac_key_variable === undefined &&
        given.eab_hmac_key_command === undefined),
    { error: 'complete: eab_key_id and a source of the HMAC key belong together' },
  )
  .prefault({})
  .describe('A certificate authority that speaks ACME, beside the internal one')

export type AcmeSettings = z.output<typeof acmeOptions>

export type AcmeService = CaService & {
  config: { acme: AcmeSettings; certificate_authority: NamePolicy }
}
