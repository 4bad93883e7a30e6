import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import * as z from 'zod'
import { writePrivateFile } from '../../process/private-file.js'
import { generatePassword } from './keys.js'

const passwordsSchema = z.object({ admin: z.string(), demo: z.string(), octavia: z.string(), barbican: z.string() })

/** Passwords of the users that the first start creates. */
export type Passwords = z.output<typeof passwordsSchema>

export const passwordsFile = (directory: string): string => join(directory, 'keys/passwords.json')

/** Null before the first start and with an external Keystone. */
export function readPasswords(directory: string): Passwords | null {
  const file = passwordsFile(directory)
  return existsSync(file) ? passwordsSchema.parse(JSON.parse(readFileSync(file, 'utf8'))) : null
}

/** Generates the passwords once. Stores them before use, so an interrupted first start continues with the same ones. */
export function ensurePasswords(directory: string): Passwords {
  const present = readPasswords(directory)
  if (present !== null) return present
  const passwords = {
    admin: generatePassword(),
    demo: generatePassword(),
    octavia: generatePassword(),
    barbican: generatePassword(),
  }
  writePrivateFile(passwordsFile(directory), `${JSON.stringify(passwords, null, 2)}\n`)
  return passwords
}
