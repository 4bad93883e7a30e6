import * as z from 'zod'
import { KEY_CHANNEL_PORT } from '../../amphora-agent/protocol/key-manager/key-channel.js'
import { apiAddress, flag, host as hostValue, port as portValue, quotaLimit } from '../options/values.js'
import { acmeServerOptions } from './acme-server/options.js'
import { acmeOptions } from './certificate-authorities/acme/options.js'
import { certificateAuthorityOptions } from './certificate-authorities/internal/options.js'
import { keyManagerCrypto } from './crypto/options.js'
import { housekeepingOptions } from './housekeeping/options.js'
import { keystoneNotifications } from './keystone-listener/options.js'
import { orderWorkerOptions } from './orders/worker/options.js'
import { renewalOptions } from './renewals/worker/options.js'

const bytes = z.coerce.number().int().min(1).max(16_777_216)
const page = z.coerce.number().int().min(1).max(1000)
const limit = quotaLimit.default(-1)

const { host, port, trusted_proxies } = apiAddress(9311)

/** The settings of the key manager's API. */
const apiOptions = {
  max_allowed_secret_in_bytes: bytes
    .default(20_000)
    .describe('Maximum size of a payload; in a JSON body the size of its text, base64 included'),
  max_allowed_request_size_in_bytes: bytes.default(25_000).describe('Maximum size of a request body'),
  default_limit_paging: page.default(10).describe('Objects per page when the request sets no limit'),
  max_limit_paging: page.default(100).describe('Maximum objects per page'),
  trusted_proxies,
  healthcheck_refresh_interval: z.coerce
    .number()
    .min(0)
    .default(5)
    .describe('Seconds for which /healthcheck reuses the last check of the database'),
  healthcheck_disable_by_file_path: z
    .string()
    .min(1)
    .optional()
    .describe('While a file exists at this path, /healthcheck answers 503'),
  policy: z
    .enum(['union', 'legacy', 'new'])
    .default('union')
    .describe(
      'Access rules: legacy (roles creator, observer, audit, key-manager:service-admin), new (reader, member, admin), or union: what either allows',
    ),
  crypto: keyManagerCrypto,
  certificate_authority: certificateAuthorityOptions,
  acme_server: acmeServerOptions,
  acme: acmeOptions,
  audit_retention_days: z.coerce
    .number()
    .int()
    .min(30)
    .max(36_500)
    .nullable()
    .default(null)
    .describe('Days to keep linked audit records; default: forever'),
  audit_head_file: z
    .string()
    .min(1)
    .optional()
    .describe(
      'File outside the database in which the worker keeps the end of the audit log; default: key-manager-audit-head in the state directory',
    ),
  delete_referenced_secrets: flag
    .default(false)
    .describe('Whether a secret can be deleted while containers refer to it; their references are deleted too'),
  expose_processing_status: flag
    .default(false)
    .describe('Whether key and asymmetric orders may show PROCESSING, which the Terraform provider does not support'),
  quota: z
    .strictObject({ secrets: limit, orders: limit, containers: limit, consumers: limit, cas: limit })
    .prefault({})
    .describe('Default quota per project for each kind of object; -1 is unlimited'),
}

/** The options of the key manager: its API, its worker, and its listener for deleted projects. */
export const keyManagerOptions = z
  .strictObject({
    host,
    port,
    public_url: z
      .url()
      .optional()
      .describe('URL at which clients reach the API; every reference in answers begins with it'),
    ...apiOptions,
    channel: z
      .strictObject({
        host: hostValue
          .optional()
          .describe(
            'Address at which amphorae reach it; defaults to the controller’s address on the management network',
          ),
        port: portValue.default(KEY_CHANNEL_PORT),
      })
      .prefault({})
      .describe('The key channel, on which amphorae read the certificates of their load balancers'),
    worker: orderWorkerOptions,
    renewals: renewalOptions,
    housekeeping: housekeepingOptions,
    keystone_notifications: keystoneNotifications,
  })
  .prefault({})

export type KeyManagerSettings = z.output<typeof keyManagerOptions>
