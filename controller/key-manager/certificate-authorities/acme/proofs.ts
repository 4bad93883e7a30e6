import type { Database } from '../../../database/connection.js'
import type { Account, AcmeClient } from './client/client.js'
import { type AcmeAuthorization, acmeAuthorization, type Identifier } from './order.js'
import { whoProves } from './state.js'

/**
 * All projects share the account, and a CA lets an account reuse an authorization for weeks. So an order can be ready
 * because another project has proven its names: then the names have to be proven anew.
 */
export type Proving = {
  database: Database
  client: AcmeClient
  account: Account
  projectId: string
  /** Whether the operator gave the name to the project: then no other one can have proven it. */
  isGiven: (name: string) => boolean
}

export type Proofs =
  | { kind: 'proven' }
  /** Another project is about to use its proof. */
  | { kind: 'busy'; name: string }
  /** `urls` are authorizations that nobody of the project has proven, the first for `name`. */
  | { kind: 'unproven'; name: string; urls: readonly string[] }

/** Whether the project itself has proven all names of a ready order. @throws AcmeProblem, Unreachable */
export async function checkProofs(
  parts: Proving,
  identifiers: readonly Identifier[],
  urls: readonly string[],
  signal: AbortSignal,
): Promise<Proofs> {
  const { database, client, account, projectId, isGiven } = parts
  if (identifiers.every(({ value }) => isGiven(value))) return { kind: 'proven' }
  const unproven: { name: string; url: string }[] = []
  for (const url of urls) {
    const who = await whoProves(database, projectId, url)
    if (who === 'own') continue
    const { value } = await client.post(account, url, null, acmeAuthorization, signal)
    const name = value.identifier.value
    if (value.status !== 'valid' || isGiven(name)) continue
    if (who === 'other') return { kind: 'busy', name }
    unproven.push({ name, url })
  }
  const [first] = unproven
  return first === undefined
    ? { kind: 'proven' }
    : { kind: 'unproven', name: first.name, urls: unproven.map(({ url }) => url) }
}

/** Ends valid authorizations: the next order gets new ones. Safe to repeat. @throws AcmeProblem, Unreachable */
export async function endAuthorizations(
  { client, account }: Pick<Proving, 'client' | 'account'>,
  urls: readonly string[],
  signal: AbortSignal,
): Promise<void> {
  for (const url of urls) {
    const { value }: { value: AcmeAuthorization } = await client.post(account, url, null, acmeAuthorization, signal)
    if (value.status !== 'valid') continue
    await client.post(account, url, { status: 'deactivated' }, acmeAuthorization, signal)
  }
}
