import { InvalidX509 } from '../invalid-x509.js'
import { type Assembled, assemble } from './assemble.js'
import { type Material, Unusable } from './material.js'

/** What an inspection finds: what is wrong, as a clause that the caller may see, or what is public in the material. */
export type Inspected = { wrong: string } | ({ wrong: null } & Omit<Assembled, 'pem'>)

/**
 * Checks that the material is what its reference should lead to. Slow: do not call it on the thread that answers
 * requests.
 */
export function inspect(material: Material): Inspected {
  try {
    const { digest, facts } = assemble(material)
    return { wrong: null, digest, facts }
  } catch (error) {
    const wrong = whatIsWrong(error)
    if (wrong === null) throw error
    return { wrong }
  }
}

/** Why material cannot be assembled, as a clause that quotes nothing of it; null for another error. */
export function whatIsWrong(error: unknown): string | null {
  if (error instanceof Unusable) return error.message
  return error instanceof InvalidX509 ? clause(error.message) : null
}

/** A sentence as a clause. */
const clause = (sentence: string): string => sentence.charAt(0).toLowerCase() + sentence.slice(1).replace(/\.$/, '')
