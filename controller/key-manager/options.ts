import { z } from 'zod'
import { apiAddress, flag, quotaLimit } from '../options/values.js'
import { certificateAuthorityOptions } from './certificate-authorities/internal/options.js'
import { keyManagerCrypto } from './crypto/options.js'
import { housekeepingOptions } from './housekeeping/options.js'
import { keystoneNotifications } from './keystone-listener/options.js'
import { orderWorkerOptions } from './orders/worker/options.js'

const bytes = z.coerce.number().int().min(1).max(16_777_216)
const page = z.coerce.number().int().min(1).max(1000)
const limit = quotaLimit.default(-1)

const { host, port, trusted_proxies } = apiAddress(9311)

/** What an operator may set of the key manager's API. */
const apiOptions = {
  max_allowed_secret_in_bytes: bytes
    .default(20_000)
    .describe('Longest payload of a secret; in a JSON body its text counts, base64 included'),
  max_allowed_request_size_in_bytes: bytes.default(25_000).describe('Longest body of a request'),
  default_limit_paging: page.default(10).describe('Objects on a page of a list that names no limit'),
  max_limit_paging: page.default(100).describe('Most objects on a page'),
  trusted_proxies,
  healthcheck_refresh_interval: z.coerce
    .number()
    .min(0)
    .default(5)
    .describe('Seconds for which one check of the database answers every /healthcheck'),
  healthcheck_disable_by_file_path: z
    .string()
    .min(1)
    .optional()
    .describe('While there is a file at this path, /healthcheck answers 503'),
  policy: z
    .enum(['union', 'legacy', 'new'])
    .default('union')
    .describe(
      'Whose rules count: the older ones (creator, observer, audit, key-manager:service-admin), the newer ones (reader, member, admin), or what either allows',
    ),
  crypto: keyManagerCrypto,
  certificate_authority: certificateAuthorityOptions,
  audit_retention_days: z.coerce
    .number()
    .int()
    .min(30)
    .max(36_500)
    .nullable()
    .default(null)
    .describe('How long linked records of the audit log are kept; for ever when not given'),
  audit_head_file: z
    .string()
    .min(1)
    .optional()
    .describe(
      'File in which the worker keeps the end of the audit log, outside the database; key-manager-audit-head in the state directory when not given',
    ),
  delete_referenced_secrets: flag
    .default(false)
    .describe('Whether a secret may be deleted while containers refer to it; the references then vanish'),
  expose_processing_status: flag
    .default(false)
    .describe('Whether key and asymmetric orders may show PROCESSING, which the Terraform provider does not know'),
  quota: z
    .strictObject({ secrets: limit, orders: limit, containers: limit, consumers: limit, cas: limit })
    .prefault({})
    .describe('Most objects of each kind in a project for which no other limit was set; -1 is unlimited'),
}

/** The options of the key manager: its API, its worker, and its listener for deleted projects. */
export const keyManagerOptions = z
  .strictObject({
    host,
    port,
    public_url: z.url().optional().describe('Where clients reach the API: the base of every reference in answers'),
    ...apiOptions,
    worker: orderWorkerOptions,
    housekeeping: housekeepingOptions,
    keystone_notifications: keystoneNotifications,
  })
  .prefault({})

export type KeyManagerSettings = z.output<typeof keyManagerOptions>
