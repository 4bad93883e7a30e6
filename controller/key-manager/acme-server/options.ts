import * as z from 'zod'
import { flag, isNetwork, listOf } from '../../options/values.js'

const perHour = (limit: number) => z.coerce.number().int().min(1).max(1_000_000).default(limit)

const server = z
  .string()
  .regex(
    /^([0-9.]+(:\d{1,5})?|[0-9A-Fa-f:.]+|\[[0-9A-Fa-f:.]+\]:\d{1,5})$/,
    'must be an address, optionally with a port',
  )

/** Settings of the ACME server. */
export const acmeServerOptions = z
  .strictObject({
    enable: flag.default(true).describe('Whether the key manager serves ACME (RFC 8555) under /acme/'),
    resolvers: listOf(server)
      .default([])
      .describe('DNS servers that resolve the names to validate; default: those of the system'),
    outside_networks: listOf(z.string().refine(isNetwork, { error: 'an address, or a network such as 10.0.0.0/8' }))
      .default([])
      .describe(
        'Networks outside Krater that validations may reach from this machine, for every project; by default they reach the networks of the project only',
      ),
    orders_per_hour: perHour(300).describe('Maximum ACME orders of a project per hour; an account has a third of it'),
    names_per_hour: perHour(1000).describe('Maximum names in the ACME orders of a project per hour'),
    failures_per_hour: perHour(60).describe(
      'Failed validations per hour after which an account gets no more orders until the hour is over',
    ),
    accounts_per_hour: perHour(60).describe('Maximum new ACME accounts of a project per hour'),
  })
  .prefault({})
  .describe('The ACME server before the internal certificate authority')

export type AcmeServerSettings = z.output<typeof acmeServerOptions>
