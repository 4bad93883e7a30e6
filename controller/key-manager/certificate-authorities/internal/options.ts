import { isIP } from 'node:net'
import * as z from 'zod'
import { flag, listOf } from '../../../options/values.js'
import type { CaService } from '../ca-backend.js'

const days = (max: number) => z.coerce.number().int().min(1).max(max)

const HOST = /^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$/

/** Whether it is a host name without a wildcard, or an address with an optional prefix length. */
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

/** Settings of the internal certificate authority. The first three apply when a CA is created. */
export const certificateAuthorityOptions = z
  .strictObject({
    root_subject_dn: z
      .string()
      .min(1)
      .max(500)
      .default('CN=Krater Root CA,O=Krater')
      .describe('Subject of the root CA, which is created at the first start'),
    key: z
      .enum(['ec-256', 'ec-384', 'ec-521', 'rsa-2048', 'rsa-4096'])
      .default('ec-384')
      .describe('Key type of new CAs, the root and subordinates'),
    ca_days: days(7300)
      .default(3650)
      .describe('Days that the certificate of a new CA is valid; never longer than that of its parent'),
    certificate_days: days(730)
      .default(730)
      .describe('Days that an issued certificate is valid; never longer than that of its CA'),
    crl_days: days(365)
      .default(7)
      .describe('Days that a certificate revocation list is valid; it is renewed daily and after each revocation'),
  })
  .extend({
    project_cas: flag
      .default(false)
      .describe(
        'Whether each project gets its own CA with name constraints below the root, instead of certificates from the root itself',
      ),
    reserved_names: listOf(name)
      .default([])
      .describe(
        'Names, including all below them, and address ranges that no certificate may contain; localhost, localdomain, loopback addresses and wildcards of public suffixes are always reserved',
      ),
    permitted_names: listOf(name).default([]).describe('Exceptions to reserved_names'),
    project_names: listOf(projectName)
      .default([])
      .describe(
        'Names and address ranges of projects, as PROJECT=NAME: no other project gets certificates for them, and a project with entries gets certificates only for its own',
      ),
  })
  .prefault({})
  .describe('The internal certificate authority')

export type CertificateAuthoritySettings = z.output<typeof certificateAuthorityOptions>

export type InternalCaService = CaService & { config: { certificate_authority: CertificateAuthoritySettings } }
