import { type Assembled, assemble } from './assemble.js'
import { type Material, whatIsWrong } from './material.js'

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
