import { isIP } from 'node:net'
import { z } from 'zod'
import { flag, listOf } from '../../../options/values.js'
import type { CaService } from '../ca-backend.js'

const days = (most: number) => z.coerce.number().int().min(1).max(most)

const HOST = /^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$/

/** A host name without a wildcard, or an address with the bits that count. */
function isNameOrRange(text: string): boolean {
  const [address = '', bits, ...others] = text.split('/')
  const version = isIP(address)
  if (version === 0) return HOST.test(text)
  return (
    others.length === 0 &&
    (bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) <= (version === 4 ? 32 : 128)))
  )
}

const name = z.string().toLowerCase().refine(isNameOrRange, 'must be a host name, an address or an address range')
const projectName = z
  .string()
  .regex(/^[^=]{1,64}=./, 'must be PROJECT=NAME')
  .transform(text => ({ project: text.slice(0, text.indexOf('=')), name: text.slice(text.indexOf('=') + 1) }))
  .pipe(z.object({ project: z.string(), name }))

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
  .extend({
    project_cas: flag
      .default(false)
      .describe(
        'Whether each project has a CA of its own below the root, with name constraints, instead of certificates from the root itself',
      ),
    reserved_names: listOf(name)
      .default([])
      .describe(
        'Names, with all below them, and address ranges that no certificate may have; localhost, localdomain, loopback addresses and wildcards of public suffixes are always reserved',
      ),
    permitted_names: listOf(name).default([]).describe('Exceptions from reserved names'),
    project_names: listOf(projectName)
      .default([])
      .describe(
        'Names and address ranges of projects, as PROJECT=NAME: no other project gets certificates for them, and a project that has some gets none for others',
      ),
  })
  .prefault({})
  .describe('The internal certificate authority')

export type CertificateAuthoritySettings = z.output<typeof certificateAuthorityOptions>

/** What the internal CA works with. */
export type InternalCaService = CaService & { config: { certificate_authority: CertificateAuthoritySettings } }
