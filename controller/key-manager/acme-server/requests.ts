import type * as z from 'zod'
import type { Call } from './dialect.js'
import { AcmeProblem, malformed } from './problem.js'
import type { Account } from './store/accounts.js'

/** The account that signed. The route's right has made sure of it. */
export function requireAccount({ caller, route }: Call): Account {
  if (caller.account !== null) return caller.account
  throw new Error(`${route.path} needs an account`)
}

/** The payload, parsed. @throws AcmeProblem malformed */
export function payloadAs<Schema extends z.ZodType>({ caller }: Call, schema: Schema): z.output<Schema> {
  const parsed = schema.safeParse(caller.payload)
  if (parsed.success) return parsed.data
  const [issue] = parsed.error.issues
  const where = issue === undefined || issue.path.length === 0 ? '' : ` at "${issue.path.join('.').slice(0, 100)}"`
  throw malformed(`The payload is not valid${where}: ${issue?.message ?? 'unknown fault'}.`)
}

/** @throws AcmeProblem malformed unless it is a POST-as-GET */
export function requireEmpty({ caller }: Call): void {
  if (caller.payload !== null) throw malformed('The payload must be empty.')
}

/** What an account may see: its own objects. @throws AcmeProblem 404 */
export function requireFound<Found extends { accountId: string }>(
  found: Found | null,
  account: Account,
  what: string,
): Found {
  // An object of another account is told apart from none at all by nobody.
  if (found !== null && found.accountId === account.id) return found
  throw new AcmeProblem('malformed', `There is no such ${what}.`, { status: 404 })
}
