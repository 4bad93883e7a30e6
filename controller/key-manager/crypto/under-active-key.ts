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
    const outcome = await store()
    if (outcome !== 'key replaced') return outcome
    keyring.forgetActive(projectId)
  }
  throw new Error(`The key of project ${projectId} is replaced all the time.`)
}
