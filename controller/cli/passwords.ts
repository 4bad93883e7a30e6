import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { z } from 'zod'
import { generatePassword } from '../config/keys.js'
import { writePrivateFile } from '../config/private-file.js'

const passwordsSchema = z.object({ admin: z.string(), demo: z.string(), octavia: z.string(), barbican: z.string() })

/** Passwords of the users that a first start makes. */
export type Passwords = z.output<typeof passwordsSchema>

/** Generated once, and kept before they are used: a first start that is cut off goes on with the same ones. */
export function ensurePasswords(directory: string): Passwords {
  const file = join(directory, 'keys/passwords.json')
  if (existsSync(file)) return passwordsSchema.parse(JSON.parse(readFileSync(file, 'utf8')))
  const passwords = {
    admin: generatePassword(),
    demo: generatePassword(),
    octavia: generatePassword(),
    barbican: generatePassword(),
  }
  writePrivateFile(file, `${JSON.stringify(passwords, null, 2)}\n`)
  return passwords
}
