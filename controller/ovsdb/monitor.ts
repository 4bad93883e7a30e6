import type { Tables } from './columns.js'
import type { OvsdbConnection } from './connection.js'
import type { DatabaseCopy, RowChange, UpdateForm } from './copy.js'
import { MethodRefused, OvsdbProtocolError } from './errors.js'

/** A monitor that a server has granted. */
export type Monitor = {
  /** What the copy had to change to equal the database. */
  changes: RowChange[]
  /** Takes a notification. @returns what changed; null if it is not of this monitor. @throws OvsdbProtocolError */
  take: (method: string, params: readonly unknown[]) => RowChange[] | null
  /** The last transaction that the copy has; null on a server that does not name them. */
  lastTransaction: () => string | null
}

/** The copy of a database that has seen nothing yet. */
const NO_TRANSACTION = '00000000-0000-0000-0000-000000000000'

/** Milliseconds: the whole of a big database comes at once. */
const CONTENTS_LIMIT_MS = 60_000

/**
 * Starts to follow a database. Resumes after `since` if the server still knows what came after it. Servers of OVS 2.11
 * and older only send the whole contents, and older ones than 2.6 rows instead of differences.
 * @throws MethodRefused, OvsdbUnreachable, OvsdbProtocolError
 */
export async function startMonitor(
  connection: OvsdbConnection,
  database: string,
  { tables, copy, since }: { tables: Tables; copy: DatabaseCopy; since: string | null },
): Promise<Monitor> {
  const id = ['krater', database]
  const requests = Object.fromEntries(
    Object.entries(tables).map(([table, columns]) => [table, [{ columns: Object.keys(columns) }]]),
  )
  const ask = (method: string, ...more: unknown[]) =>
    connection.request(method, [database, id, requests, ...more], CONTENTS_LIMIT_MS)

  const resumed = await ifKnown(ask('monitor_cond_since', since ?? NO_TRANSACTION))
  if (resumed !== UNKNOWN) {
    const { isFound, transaction, contents } = readResumed(resumed)
    const changes = isFound ? copy.apply('update2', contents) : copy.replace('update2', contents)
    let lastTransaction = transaction
    return {
      changes,
      lastTransaction: () => lastTransaction,
      take: (method, [monitor, last, update]) => {
        if (method !== 'update3' || !isSame(monitor, id)) return null
        const taken = copy.apply('update2', update)
        if (typeof last === 'string') lastTransaction = last
        return taken
      },
    }
  }
  const withDifferences = await ifKnown(ask('monitor_cond'))
  if (withDifferences !== UNKNOWN) return plainMonitor(copy, 'update2', id, withDifferences)
  const whole = await connection.request('monitor', [database, id, wholeRequests(requests)], CONTENTS_LIMIT_MS)
  return plainMonitor(copy, 'update', id, whole)
}

function plainMonitor(copy: DatabaseCopy, form: UpdateForm, id: unknown, contents: unknown): Monitor {
  return {
    changes: copy.replace(form, contents),
    lastTransaction: () => null,
    take: (method, [monitor, update]) => (method === form && isSame(monitor, id) ? copy.apply(form, update) : null),
  }
}

/** The first servers take one request for a table, not a list. */
const wholeRequests = (requests: Readonly<Record<string, readonly unknown[]>>) =>
  Object.fromEntries(Object.entries(requests).map(([table, [request]]) => [table, request]))

const UNKNOWN = Symbol('the server does not know the method')

const ifKnown = (answer: Promise<unknown>): Promise<unknown> =>
  answer.catch((error: unknown) => {
    if (error instanceof MethodRefused && error.code === 'unknown method') return UNKNOWN
    throw error
  })

function readResumed(answer: unknown): { isFound: boolean; transaction: string; contents: unknown } {
  if (!Array.isArray(answer) || typeof answer[0] !== 'boolean' || typeof answer[1] !== 'string')
    throw new OvsdbProtocolError('The OVSDB server’s answer to monitor_cond_since is not as expected.')
  const [isFound, transaction, contents] = answer
  return { isFound, transaction, contents }
}

const isSame = (a: unknown, b: unknown): boolean => JSON.stringify(a) === JSON.stringify(b)
