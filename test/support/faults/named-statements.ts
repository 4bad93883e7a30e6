import type { Knex } from 'knex'
import type { Database } from '../../../controller/database/connection.js'

/** Code that runs statements for others, so never the step itself. */
const MACHINERY = /\/controller\/database\/|\/test\/support\/faults\/named-statements|\/node_modules\/|\(node:/

/**
 * Prefixes every statement with a comment that names the function of the product that sends it: `/* readOrder
 * *\/ SELECT ...`. A test that stops at a statement knows the step by that name, however the statement is
 * written.
 * @param database whose statements are named from now on, including those of its transactions
 */
export function nameStatements(database: Database): void {
  // Where the raw() of a pool and that of its transactions meet.
  const client: { raw: (...words: unknown[]) => Knex.Raw } = Object.getPrototypeOf(database.client)
  const { raw } = client
  client.raw = function (...words) {
    const step = callingFunction()
    const statement = Reflect.apply(raw, this, words)
    const options = statement.options.bind(statement)
    // The verbs of database/query.ts pass the text to options().
    statement.options = (given: Readonly<Record<string, unknown>>) =>
      options({
        ...given,
        text: `/* ${step} */ ${given.text}`,
        // A prepared statement has one text.
        name: given.name && `${step} ${given.name}`.slice(0, 63),
      })
    return statement
  }
}

/** The innermost function that is not machinery; its folder and file if it has no name. */
function callingFunction(): string {
  const { stackTraceLimit } = Error
  Error.stackTraceLimit = 40
  const frames = (new Error().stack ?? '').split('\n').slice(1)
  Error.stackTraceLimit = stackTraceLimit
  const frame = frames.find(line => !MACHINERY.test(line)) ?? ''
  const [, name, file] = /at (?:async )?(?:(?:\w+\.)*(\w+)|<anonymous>) \(.*?([^/]+\/[^/]+)\.ts:/.exec(frame) ?? []
  // The bundler numbers functions of the same name.
  return name?.replace(/\d+$/, '') ?? file ?? 'unknown'
}

/** Statements that no function of the product writes: knex and pg send them themselves. */
const OF_LIBRARIES = new Map([
  ['BEGIN;', 'begin'],
  ['COMMIT;', 'commit'],
])

/** The name of a statement's step; the statement itself when it has none. */
export const stepOf = (sql: string): string => /^\/\* (\S+) \*\//.exec(sql)?.[1] ?? OF_LIBRARIES.get(sql) ?? sql
