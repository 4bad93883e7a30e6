import { sqlState } from '../../database/transaction.js'
import type { Keyring } from './keyring.js'

/** Attempts at a key that is just being replaced. */
const MOST_ATTEMPTS = 5

/**
 * Seals and stores, again when the project's key was replaced in between.
 * @param store seals by the keyring and stores; says 'key replaced' when the key that sealed is no longer the active one
 */
export async function underActiveKey<Outcome extends string>(
  keyring: Pick<Keyring, 'forgetActive'>,
  projectId: string,
  store: () => Promise<Outcome | 'key replaced'>,
): Promise<Outcome> {
  for (let attempt = 1; attempt <= MOST_ATTEMPTS; attempt++) {
    const outcome = await store().catch((error): 'key replaced' => {
      if (isKeyGone(error)) return 'key replaced'
      throw error
    })
    if (outcome !== 'key replaced') return outcome
    keyring.forgetActive(projectId)
  }
  throw new Error(`The key of project ${projectId} is replaced all the time.`)
}

/** True when a row could not be stored because its project key was active when the statement began, and deleted before it ended. */
const isKeyGone = (error: unknown): boolean =>
  sqlState(error) === '23503' &&
  error instanceof Error &&
  'constraint' in error &&
  typeof error.constraint === 'string' &&
  error.constraint.endsWith('_project_key_id_fkey')
