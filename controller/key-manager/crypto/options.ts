import { z } from 'zod'
import { flag, listOf } from '../../options/values.js'
import { backendOptions, CRYPTO_BACKEND_NAMES, whatBackendLacks } from './backends.js'
import { seconds } from './secret-settings.js'

/** How the key manager encrypts what it stores. */
export const keyManagerCrypto = z
  .strictObject({
    backends: listOf(z.enum(CRYPTO_BACKEND_NAMES))
      .default(['simple'])
      .describe('The crypto back ends; the first is for new secrets, the others for what is stored with them already'),
    enable_multiple_secret_stores: flag
      .default(false)
      .describe('Whether projects may choose among the back ends, by the secret-stores API'),
    key_cache_ttl: seconds.default(900).describe('Seconds that an unwrapped key of a project is kept'),
    ...backendOptions,
  })
  .refine(({ backends }) => backends.length > 0 && new Set(backends).size === backends.length, {
    error: `given at least one of the back ends ${CRYPTO_BACKEND_NAMES.join(' and ')}, each once`,
    path: ['backends'],
  })
  .superRefine((given, context) => {
    const stores = new Set<string>()
    for (const name of CRYPTO_BACKEND_NAMES) {
      const { store_name } = given[name]
      if (stores.has(store_name)) {
        const message = 'another name than the other store’s'
        context.addIssue({ code: 'custom', message, path: [name, 'store_name'] })
      }
      stores.add(store_name)
    }
    for (const name of new Set(given.backends)) {
      const lack = whatBackendLacks(name, given)
      if (lack === null) continue
      const message = `${lack.what}, since the back end ${name} is in use`
      context.addIssue({ code: 'custom', message, path: [name, lack.setting] })
    }
  })
  .prefault({})

export type KeyManagerCrypto = z.output<typeof keyManagerCrypto>
