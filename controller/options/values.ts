import { isIP } from 'node:net'
import * as z from 'zod'

const WORDS: Readonly<Record<string, boolean>> = {
  true: true,
  yes: true,
  on: true,
  '1': true,
  false: false,
  no: false,
  off: false,
  '0': false,
}

/** A boolean; in the environment, a word such as `yes`. */
export const flag = z.preprocess(
  value => (typeof value === 'string' ? (WORDS[value.trim().toLowerCase()] ?? value) : value),
  z.boolean(),
)

/** A list; in the environment, separated by commas. */
export const listOf = <T extends z.ZodType>(item: T) =>
  z.preprocess(
    value =>
      typeof value === 'string'
        ? value
            .split(',')
            .map(part => part.trim())
            .filter(part => part !== '')
        : value,
    z.array(item),
  )

export const host = z.string().min(1)
export const port = z.coerce.number().int().min(1).max(65535)
export const seconds = z.coerce.number().positive()

/** The quota of projects without their own; -1 means unlimited. */
export const quotaLimit = z.coerce.number().int().min(-1).max(2_000_000_000)

/** As quotaLimit, with a default. @param objects plural noun for the counted objects */
export const defaultQuota = (objects: string, limit: number) =>
  quotaLimit.default(limit).describe(`Default quota of ${objects} per project; -1 means unlimited`)

/** An http or https URL without user, query or fragment. @param example for the error message */
export const serviceUrl = (example: string) =>
  z
    .url({ protocol: /^https?$/, error: `a URL such as ${example}` })
    .refine(url => !/[@?#]/.test(url), { error: 'a URL without user, query or fragment' })

/** Whether a text is an address, or a network as `address/prefix length`. */
export function isNetwork(text: string): boolean {
  const [address = '', length, ...rest] = text.split('/')
  const bits = { 0: -1, 4: 32, 6: 128 }[isIP(address)] ?? -1
  return bits > 0 && rest.length === 0 && (length === undefined || (/^\d{1,3}$/.test(length) && Number(length) <= bits))
}

/** The address on which an API listens, and the proxies in front of it. @param servicePort default port */
export const apiAddress = (servicePort: number) => ({
  host: host.default('127.0.0.1'),
  port: port.default(servicePort),
  trusted_proxies: listOf(z.string().refine(isNetwork, { error: 'an address, or a network such as 10.0.0.0/8' }))
    .default([])
    .describe('Addresses and networks of proxies whose X-Forwarded-* headers are trusted'),
})
