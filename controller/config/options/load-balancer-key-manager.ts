import { z } from 'zod'

/** Where the certificates are to which listeners and pools refer. */
export const loadBalancerKeyManager = {
  key_manager_url: z
    .url({ protocol: /^https?$/, error: 'a URL such as https://barbican.example:9311' })
    .refine(url => !/[@?#]/.test(url), { error: 'a URL without user, query or fragment' })
    .transform(url => url.replace(/\/+$/, '').replace(/\/v1$/, ''))
    .optional()
    .describe('The key manager that holds the certificates of listeners and pools; our own when not given'),
  key_manager_ca_file: z
    .string()
    .min(1)
    .optional()
    .describe('PEM file of the authorities that vouch for the key manager; the usual ones otherwise'),
  key_manager_timeout: z.coerce
    .number()
    .positive()
    .max(300)
    .default(10)
    .describe('Seconds for one answer of the key manager'),
}
