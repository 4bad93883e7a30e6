import { sqlState } from '../../database/transaction.js'
import type { Keyring } from './keyring.js'

/** Each failed attempt means that the key was replaced meanwhile. */
const MAX_ATTEMPTS = 5

/**
 * Seals and stores a value, and retries when the project's key was replaced in between.
 * @param store seals with the keyring and stores; returns 'key replaced' when the sealing key is no longer active
 */
export async function underActiveKey<Outcome extends string>(
  keyring: Pick<Keyring, 'forgetActive'>,
  projectId: string,
  store: () => Promise<Outcome | 'key replaced'>,
): Promise<Outcome> {
  for (let attempt = 1; attempt <= MAX_ATTEMPTS; attempt++) {
    const outcome = await store().catch((error): 'key replaced' => {
      if (isKeyGone(error)) return 'key replaced'
      throw error
    })
    if (outcome !== 'key replaced') return outcome
    keyring.forgetActive(projectId)
  }
  throw new Error(`The key of project ${projectId} was replaced during each of ${MAX_ATTEMPTS} attempts.`)
}

/** Whether storing failed because the project key, active when the statement began, was deleted before it ended. */
const isKeyGone = (error: unknown): boolean =>
  sqlState(error) === '23503' &&
  error instanceof Error &&
  'constraint' in error &&
  typeof error.constraint === 'string' &&
  error.constraint.endsWith('_project_key_id_fkey')
