import * as z from 'zod'
import { flag, listOf } from '../../options/values.js'
import { backendOptions, CRYPTO_BACKEND_NAMES, missingSetting } from './backends.js'
import { seconds } from './secret-settings.js'

/** How the key manager encrypts stored secrets. */
export const keyManagerCrypto = z
  .strictObject({
    backends: listOf(z.enum(CRYPTO_BACKEND_NAMES))
      .default(['simple'])
      .describe('Crypto back ends: the first encrypts new secrets, the others decrypt what they already encrypted'),
    enable_multiple_secret_stores: flag
      .default(false)
      .describe('Whether projects may choose a back end through the secret-stores API'),
    key_cache_ttl: seconds.default(900).describe('Seconds that an unwrapped project key stays cached'),
    ...backendOptions,
  })
  .refine(({ backends }) => backends.length > 0 && new Set(backends).size === backends.length, {
    error: `a list of at least one of the back ends ${CRYPTO_BACKEND_NAMES.join(' and ')}, each at most once`,
    path: ['backends'],
  })
  .superRefine((given, context) => {
    const stores = new Set<string>()
    for (const name of CRYPTO_BACKEND_NAMES) {
      const { store_name } = given[name]
      if (stores.has(store_name)) {
        const message = 'different from the name of the other store'
        context.addIssue({ code: 'custom', message, path: [name, 'store_name'] })
      }
      stores.add(store_name)
    }
    for (const name of new Set(given.backends)) {
      const missing = missingSetting(name, given)
      if (missing === null) continue
      const message = `${missing.what}, because the back end ${name} is in use`
      context.addIssue({ code: 'custom', message, path: [name, missing.setting] })
    }
  })
  .prefault({})

export type KeyManagerCrypto = z.output<typeof keyManagerCrypto>
