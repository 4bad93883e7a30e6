import { z } from 'zod'
import { atMostOne, name, placesOf } from '../secret-settings.js'

export const simpleOptions = z
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

export type SimpleSettings = z.output<typeof simpleOptions>
