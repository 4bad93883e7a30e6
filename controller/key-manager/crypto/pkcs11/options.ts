import { z } from 'zod'
import { listOf } from '../../../options/values.js'
import { atMostOne, name, path, placesOf, seconds } from '../secret-settings.js'

export const pkcs11Options = z
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

export type Pkcs11Settings = z.output<typeof pkcs11Options>
