import { z } from 'zod'
import { flag, listOf } from '../../options/values.js'

const isArgv = (value: unknown): value is string[] =>
  Array.isArray(value) && value.length > 0 && value.every(word => typeof word === 'string' && word !== '')

/** A program with its arguments; no shell looks at it. In the environment it is JSON. */
const argvSetting = z.preprocess(
  value => {
    if (typeof value !== 'string') return value
    try {
      return JSON.parse(value)
    } catch {
      return value
    }
  },
  z.custom<string[]>(isArgv, 'a list of words: the program, then its arguments'),
)

const path = z.string().min(1)
const name = z.string().min(1).max(200)
const seconds = z.coerce.number().positive().max(86_400)

/** The settings of a secret's three places; with `prefix` pin: pin_file, pin_variable, pin_command. */
function placesOf<Prefix extends string>(prefix: Prefix, what: string, otherwise: string) {
  const settings = {
    [`${prefix}_file`]: path.optional().describe(`File with ${what}${otherwise}`),
    [`${prefix}_variable`]: name.optional().describe(`Name of an environment variable with ${what}, instead of a file`),
    [`${prefix}_command`]: argvSetting
      .optional()
      .describe(`Program and arguments that print ${what}, instead of a file; no shell is used`),
  }
  return settings as Record<`${Prefix}_file` | `${Prefix}_variable`, z.ZodOptional<z.ZodString>> &
    Record<`${Prefix}_command`, z.ZodOptional<typeof argvSetting>>
}

const simple = z
  .strictObject({
    store_name: name.default('Software Only Crypto').describe('Its name among the secret stores'),
    ...placesOf(
      'master_key',
      '32 random bytes in hexadecimal: the keys of projects are wrapped with it. Further ones behind it are former ones',
      '; keys/key-manager-master below the state directory when nothing is set',
    ),
  })
  .refine(given => atMostOne(given.master_key_file, given.master_key_variable, given.master_key_command), {
    error: 'given one source of the master key only: a file, a variable or a command',
  })
  .prefault({})
  .describe('Keys of projects in memory, wrapped by a master key')

const pkcs11 = z
  .strictObject({
    store_name: name.default('PKCS11 HSM').describe('Its name among the secret stores'),
    library_path: path.optional().describe('The PKCS#11 library of the token’s maker'),
    token_serial_number: name.optional().describe('The token, by its serial number'),
    token_labels: listOf(name).default([]).describe('The token, by its label; the first that is found'),
    slot_id: z.coerce
      .number()
      .int()
      .min(0)
      .optional()
      .describe('The token, by its slot, when neither number nor label is set'),
    ...placesOf('pin', 'the PIN of the token’s user', ''),
    master_key_label: name
      .default('krater-master-key')
      .describe('Label of the wrapping key in the token, for the first start; later ones are told by the database'),
    key_wrap_mechanism: z
      .enum(['CKM_AES_KEY_WRAP', 'CKM_AES_KEY_WRAP_PAD', 'CKM_AES_KEY_WRAP_KWP'])
      .default('CKM_AES_KEY_WRAP_PAD')
      .describe('How new keys of projects are wrapped; those that are stored stay readable'),
    call_timeout: seconds
      .default(10)
      .describe('Seconds that the token may take for one call; then the library is loaded anew'),
    queue_limit: z.coerce
      .number()
      .int()
      .min(1)
      .max(100_000)
      .default(1000)
      .describe('Calls that may wait for the token'),
    key_cache_limit: z.coerce
      .number()
      .int()
      .min(1)
      .max(100_000)
      .default(100)
      .describe('Unwrapped keys of projects kept inside the token, per process'),
  })
  .refine(given => atMostOne(given.pin_file, given.pin_variable, given.pin_command), {
    error: 'given one source of the PIN only: a file, a variable or a command',
  })
  .prefault({})
  .describe('Keys of projects inside a PKCS#11 token')

const atMostOne = (...given: unknown[]): boolean => given.filter(value => value !== undefined).length <= 1

/** How the key manager encrypts what it stores. */
export const keyManagerCrypto = z
  .strictObject({
    backends: listOf(z.enum(['simple', 'pkcs11']))
      .default(['simple'])
      .describe('The crypto back ends; the first is for new secrets, the others for what is stored with them already'),
    enable_multiple_secret_stores: flag
      .default(false)
      .describe('Whether projects may choose among the back ends, by the secret-stores API'),
    key_cache_ttl: seconds.default(900).describe('Seconds that an unwrapped key of a project is kept'),
    simple,
    pkcs11,
  })
  .refine(({ backends }) => backends.length > 0 && new Set(backends).size === backends.length, {
    error: 'given at least one of the back ends simple and pkcs11, each once',
    path: ['backends'],
  })
  .refine(given => given.simple.store_name !== given.pkcs11.store_name, {
    error: 'another name than the other store’s',
    path: ['pkcs11', 'store_name'],
  })
  .refine(({ backends, pkcs11: { library_path } }) => !backends.includes('pkcs11') || library_path !== undefined, {
    error: 'the path of the PKCS#11 library, since the back end pkcs11 is in use',
    path: ['pkcs11', 'library_path'],
  })
  .prefault({})

export type KeyManagerCrypto = z.output<typeof keyManagerCrypto>
