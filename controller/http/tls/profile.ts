import { constants } from 'node:crypto'
import type { SecureContextOptions } from 'node:tls'

/** The versions that an API may demand at least. */
export const MINIMUM_VERSIONS = ['TLSv1.2', 'TLSv1.3'] as const

export type MinimumVersion = (typeof MINIMUM_VERSIONS)[number]

/**
 * Mozilla's intermediate profile without its DHE suites, which need parameters of their own and serve no client that
 * lacks ECDHE. The client's order counts: it knows whether its processor has AES instructions.
 */
const CIPHERS = [
  'TLS_AES_128_GCM_SHA256',
  'TLS_AES_256_GCM_SHA384',
  'TLS_CHACHA20_POLY1305_SHA256',
  'ECDHE-ECDSA-AES128-GCM-SHA256',
  'ECDHE-RSA-AES128-GCM-SHA256',
  'ECDHE-ECDSA-AES256-GCM-SHA384',
  'ECDHE-RSA-AES256-GCM-SHA384',
  'ECDHE-ECDSA-CHACHA20-POLY1305',
  'ECDHE-RSA-CHACHA20-POLY1305',
]

const GROUPS = ['X25519', 'prime256v1', 'secp384r1']

/** The options of a TLS server of ours, certificates apart. A client cannot renegotiate. */
export const serverProfile = (minimumVersion: MinimumVersion): SecureContextOptions => ({
  minVersion: minimumVersion,
  maxVersion: 'TLSv1.3',
  ciphers: CIPHERS.join(':'),
  ecdhCurve: GROUPS.join(':'),
  honorCipherOrder: false,
  secureOptions: constants.SSL_OP_NO_RENEGOTIATION,
})
