import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { z } from 'zod'
import { writePrivateFile } from '../../process/private-file.js'
import { generatePassword } from './keys.js'

const passwordsSchema = z.object({ admin: z.string(), demo: z.string(), octavia: z.string(), barbican: z.string() })

/** Passwords of the users that a first start makes. */
export type Passwords = z.output<typeof passwordsSchema>

const fileIn = (directory: string): string => join(directory, 'keys/passwords.json')

/** Null when there was no first start with users of our own here. */
export function readPasswords(directory: string): Passwords | null {
  const file = fileIn(directory)
  return existsSync(file) ? passwordsSchema.parse(JSON.parse(readFileSync(file, 'utf8'))) : null
}

/** Generated once, and kept before they are used: a first start that is cut off goes on with the same ones. */
export function ensurePasswords(directory: string): Passwords {
  const present = readPasswords(directory)
  if (present !== null) return present
  const passwords = {
    admin: generatePassword(),
    demo: generatePassword(),
    octavia: generatePassword(),
    barbican: generatePassword(),
  }
  writePrivateFile(fileIn(directory), `${JSON.stringify(passwords, null, 2)}\n`)
  return passwords
}
