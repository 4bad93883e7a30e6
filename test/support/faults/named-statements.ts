import type { Knex } from 'knex'
import type { Database } from '../../../controller/database/connection.js'

/** What runs statements for others: not the step itself. */
const MACHINERY = /\/controller\/database\/|\/test\/support\/faults\/named-statements|\/node_modules\/|\(node:/

/**
 * Writes before every statement which function of the product sends it, as a comment: `/* readOrder *\/ SELECT ...`. A test that stops the
 * world at a statement then knows the step by that name, however the statement is written.
 * @param database whose statements are named from now on, those of its transactions too
 */
export function nameStatements(database: Database): void {
  // Where the raw() of a pool and those of its transactions meet.
  const client: { raw: (...words: unknown[]) => Knex.Raw } = Object.getPrototypeOf(database.client)
  const { raw } = client
  client.raw = function (...words) {
    const step = callingFunction()
    const statement = Reflect.apply(raw, this, words)
    const options = statement.options.bind(statement)
    // The verbs of database/query.ts give the text to options().
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

/** The innermost function that is not machinery; its folder and file when it has no name. */
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

/** What no function of the product writes: knex and pg say it for their own ends. */
const OF_LIBRARIES = new Map([
  ['select version();', 'connect'],
  ['BEGIN;', 'begin'],
  ['COMMIT;', 'commit'],
])

/** The name of the step that a statement belongs to; the statement itself when it has none. */
export const stepOf = (sql: string): string => /^\/\* (\S+) \*\//.exec(sql)?.[1] ?? OF_LIBRARIES.get(sql) ?? sql
