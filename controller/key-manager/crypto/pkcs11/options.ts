import * as z from 'zod'
import { listOf } from '../../../options/values.js'
import { atMostOne, name, path, seconds, secretSourceSettings } from '../secret-settings.js'

export const pkcs11Options = z
  .strictObject({
    store_name: name.default('PKCS11 HSM').describe('Its name among the secret stores'),
    library_path: path.optional().describe('Path of the PKCS#11 library of the token’s vendor'),
    token_serial_number: name.optional().describe('Selects the token by serial number'),
    token_labels: listOf(name).default([]).describe('Selects the token by label: the first label found is used'),
    slot_id: z.coerce
      .number()
      .int()
      .min(0)
      .optional()
      .describe('Selects the token by slot, if neither serial number nor label is set'),
    ...secretSourceSettings('pin', 'the PIN of the token’s user', ''),
    master_key_label: name
      .default('krater-master-key')
      .describe('Label of the master key in the token at the first start; after that the database records the label'),
    key_wrap_mechanism: z
      .enum(['CKM_AES_KEY_WRAP', 'CKM_AES_KEY_WRAP_PAD', 'CKM_AES_KEY_WRAP_KWP'])
      .default('CKM_AES_KEY_WRAP_PAD')
      .describe('How new project keys are wrapped; stored ones stay readable'),
    call_timeout: seconds
      .default(10)
      .describe('Seconds that the token may take for one call before the library is reloaded'),
    queue_limit: z.coerce
      .number()
      .int()
      .min(1)
      .max(100_000)
      .default(1000)
      .describe('Maximum number of calls waiting for the token'),
    key_cache_limit: z.coerce
      .number()
      .int()
      .min(1)
      .max(100_000)
      .default(100)
      .describe('Maximum number of unwrapped project keys cached inside the token, per process'),
  })
  .refine(given => atMostOne(given.pin_file, given.pin_variable, given.pin_command), {
    error: 'limited to one source of the PIN: a file, a variable or a command',
  })
  .prefault({})
  .describe('Project keys inside a PKCS#11 token')

export type Pkcs11Settings = z.output<typeof pkcs11Options>
