import { isIP } from 'node:net'
import * as z from 'zod'
import { isDnsName } from '../../x509/encoding/general-names.js'
import { flag, listOf } from '../options/values.js'
import { MINIMUM_VERSIONS } from './tls/profile.js'

const count = z.coerce.number().int().max(1_000_000)

/** Every process works in `/`, so a relative path would name another file. */
const path = z.string().refine(text => text.startsWith('/'), { error: 'an absolute path' })

const REFERENCE = /^\S*\/(secrets|containers)\/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\/?$/i

const tlsOptions = z
  .strictObject({
    internal_ca: flag
      .default(false)
      .describe(
        'Serve HTTPS with certificates that Krater issues and renews; api-ca.pem in the state directory is their CA',
      ),
    certificate_file: path
      .optional()
      .describe(
        'Serve HTTPS with this certificate: a PEM file, the intermediates after it; read again when it changes',
      ),
    key_file: path.optional().describe('PEM file with the key of the certificate, without a passphrase'),
    reference: z
      .string()
      .refine(text => REFERENCE.test(text), { error: 'the reference of a secret or container of the key manager' })
      .optional()
      .describe(
        'Serve HTTPS with a certificate from the key manager, read by Krater’s service user: a certificate container or a PKCS#12 secret',
      ),
    ca_file: path
      .optional()
      .describe(
        'PEM file with further CAs for clients of the APIs, such as that of certificate_file or of a proxy at public_url: Krater’s own clients, openrc and clouds.yaml use it; default: the public CAs',
      ),
    names: listOf(
      z.string().refine(text => isIP(text) !== 0 || isDnsName(text), { error: 'a host name or an address' }),
    )
      .default([])
      .describe('Further names and addresses in the certificates of internal_ca'),
    minimum_version: z.enum(MINIMUM_VERSIONS).default('TLSv1.2').describe('Minimum TLS version of the APIs'),
  })
  .superRefine(({ internal_ca, certificate_file, key_file, reference }, context) => {
    const refuse = (name: string, message: string) => context.addIssue({ code: 'custom', path: [name], message })
    if (certificate_file !== undefined && key_file === undefined) refuse('key_file', 'the PEM file with the key')
    if (key_file !== undefined && certificate_file === undefined)
      refuse('certificate_file', 'the PEM file with the certificate of api.tls.key_file')
    const [first, second] = [
      ...(internal_ca ? ['internal_ca'] : []),
      ...(certificate_file === undefined ? [] : ['certificate_file']),
      ...(reference === undefined ? [] : ['reference']),
    ]
    if (first !== undefined && second !== undefined) {
      refuse(second, `left out, since api.tls.${first} already says which certificate to serve`)
    }
  })
  .prefault({})

/** Settings common to all APIs. */
export const httpOptions = z
  .strictObject({
    max_connections: count
      .min(16)
      .default(4096)
      .describe('Maximum connections of each API; lower if the process may not open that many files'),
    max_connections_per_source: count
      .min(1)
      .default(512)
      .describe(
        'Maximum connections from one address (IPv6: one /64), except trusted proxies; beyond it, the oldest idle one is closed',
      ),
    tls: tlsOptions,
    allow_http: flag
      .default(false)
      .describe(
        'Allow plain HTTP on addresses other than loopback, where others can read passwords and tokens on their way',
      ),
  })
  .prefault({})
  .describe('Settings common to all APIs')

export type HttpSettings = z.output<typeof httpOptions>

/** Whether the APIs serve HTTPS. */
export const servesTls = ({ tls }: Pick<HttpSettings, 'tls'>): boolean =>
  tls.internal_ca || tls.certificate_file !== undefined || tls.reference !== undefined
