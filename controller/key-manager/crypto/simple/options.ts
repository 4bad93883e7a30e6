import * as z from 'zod'
import { atMostOne, name, secretSourceSettings } from '../secret-settings.js'

export const simpleOptions = z
  .strictObject({
    store_name: name.default('Software Only Crypto').describe('Its name among the secret stores'),
    ...secretSourceSettings(
      'master_key',
      'the master key that wraps project keys: 32 random bytes in hexadecimal, followed by any former master keys',
      '; by default keys/key-manager-master below the state directory',
    ),
  })
  .refine(given => atMostOne(given.master_key_file, given.master_key_variable, given.master_key_command), {
    error: 'limited to one source of the master key: a file, a variable or a command',
  })
  .prefault({})
  .describe('Project keys in memory, wrapped by a master key')

export type SimpleSettings = z.output<typeof simpleOptions>
