import { z } from 'zod'

const days = (most: number) => z.coerce.number().int().min(1).max(most)

/** What an operator may set of the internal certificate authority. The first three take effect when a CA is made. */
export const certificateAuthorityOptions = z
  .strictObject({
    root_subject_dn: z
      .string()
      .min(1)
      .max(500)
      .default('CN=Krater Root CA,O=Krater')
      .describe('Subject of the root CA, which is made at the first start'),
    key: z
      .enum(['ec-256', 'ec-384', 'ec-521', 'rsa-2048', 'rsa-4096'])
      .default('ec-384')
      .describe('Kind of the key of a new CA, the root or a subordinate'),
    ca_days: days(7300)
      .default(3650)
      .describe('How long the certificate of a new CA is valid; never longer than that of the CA above it'),
    certificate_days: days(730)
      .default(730)
      .describe('How long an issued certificate is valid; never longer than that of its CA'),
    crl_days: days(365)
      .default(7)
      .describe(
        'How long a certificate revocation list may be used; a new one is made every day, and at each revocation',
      ),
  })
  .prefault({})
  .describe('The internal certificate authority')
