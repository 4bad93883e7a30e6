import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import type { Test } from 'tap'
import { eventually } from '../eventually.js'
import type { ProcessOrders } from '../worlds/key-manager-process.js'
import { bundle } from '../worlds/programs.js'
import { stepOf } from './named-statements.js'
import { type Passing, startStatementProxy } from './statement-proxy.js'

/** A process of the key manager; `firstLine` is what it printed when it was ready: for an API, its URL. */
export type Running = { firstLine: string; kill: () => Promise<void> }

/**
 * A place to kill a process: at a step before PostgreSQL gets it, or after the step when the process does not
 * know it yet. A step is named after the function that sends its statement, or `begin`, `commit`.
 */
export type Kill = { step: string; at: Passing['at'] }

/** When the work that a statement belongs to has begun, and when it is over. */
export type Work = { hasBegun: () => Promise<boolean>; isOver: () => Promise<boolean> }

export type CrashScene = {
  /** Starts a process whose statements pass through the scene. It is killed with the test. */
  start: (does: ProcessOrders['does']) => Promise<Running>
  /**
   * Lets statements pass from now on, and kills the process at one of them, which does not pass.
   * @param kill null to let the process finish
   * @param work `hasBegun` is true when the last statement belongs to the work that the process was given
   * @returns the steps from the beginning of the work
   * @throws Error when the step to kill at is never reached
   */
  killAt: (running: Running, kill: Kill | null, work: Work) => Promise<string[]>
  /**
   * Lets statements pass from now on, and kills the process when the statement with this number, counted from 1, has
   * happened and the process does not know it yet; with 0, before the first one happens.
   * @param isOver when the work is over, however many statements it took
   * @returns the step at which it died; null if the work was over before
   */
  killAfter: (running: Running, statements: number, isOver: () => boolean) => Promise<string | null>
}

/** The first step before it happens, and every step after it happened, while the process does not know it yet. */
export const killsAt = (steps: readonly string[]): Kill[] => [
  ...steps.slice(0, 1).map(step => ({ step, at: 'asked' as const })),
  ...steps.map(step => ({ step, at: 'answered' as const })),
]

/**
 * The difference between the steps of a process and those that the test knows; empty lists when they are the
 * same.
 */
export const differences = (seen: readonly string[], known: readonly string[]) => ({
  unknown: seen.filter(step => !known.includes(step)),
  missing: known.filter(step => !seen.includes(step)),
})

/** What `differences` returns for equal steps. */
export const SAME = { unknown: [], missing: [] }

/**
 * Processes of the key manager that can be killed at any of their statements.
 * @param databaseUrl of the key manager's role
 * @param masterKey 32 bytes
 * @param settings of the `key_manager` group
 * @param channel that processes serve which do `bindings`
 */
export async function createCrashScene(
  t: Test,
  databaseUrl: string,
  masterKey: Buffer,
  settings: Readonly<Record<string, unknown>> = {},
  channel?: ProcessOrders['channel'],
): Promise<CrashScene> {
  const directory = t.testdir({})
  await bundle({ process: join(import.meta.dirname, '../worlds/key-manager-process.ts') }, directory)
  const program = join(directory, 'process.mjs')
  const proxy = await startStatementProxy(databaseUrl)
  const children = new Set<ChildProcess>()
  t.teardown(async () => {
    for (const child of children) child.kill('SIGKILL')
    await proxy.stop()
  })

  const start: CrashScene['start'] = async does => {
    const child = spawn(process.execPath, ['--enable-source-maps', program], { stdio: ['pipe', 'pipe', 'inherit'] })
    children.add(child)
    const orders: ProcessOrders = {
      ...{ does, databaseUrl: proxy.url, masterKey: masterKey.toString('hex'), settings },
      ...(channel !== undefined && { channel }),
    }
    child.stdin.end(JSON.stringify(orders))
    const lines = createInterface({ input: child.stdout })
    const [firstLine] = await Promise.race([once(lines, 'line'), once(child, 'exit')])
    if (typeof firstLine !== 'string') throw new Error(`The process ended with status ${firstLine}.`)
    return {
      firstLine,
      kill: async () => {
        const ended = once(child, 'exit')
        child.kill('SIGKILL')
        await ended
        children.delete(child)
      },
    }
  }

  const killAt: CrashScene['killAt'] = async (running, kill, { hasBegun, isOver }) => {
    const seen: string[] = []
    let underWay = 0
    let begun = false
    let killed = false
    proxy.watch(async passing => {
      const step = stepOf(passing.sql)
      if (passing.at === 'asked') underWay++
      if (passing.at === 'answered') begun ||= await hasBegun()
      if (kill?.at === passing.at && (begun || passing.at === 'asked') && kill.step === step) {
        killed = true
        proxy.watch(() => new Promise(() => {}))
        return new Promise(() => {})
      }
      // A process killed earlier may have sent the request that is answered now.
      if (passing.at === 'answered') underWay = Math.max(0, underWay - 1)
      if (passing.at === 'answered' && begun) seen.push(step)
      return undefined
    })
    const isAtEnd = async () => kill === null && (await isOver()) && underWay === 0
    await eventually(kill === null ? 'over' : `killed at ${kill.step}`, async () => killed || isAtEnd(), 30_000)
    await running.kill()
    proxy.watch(() => {})
    return seen
  }

  const killAfter: CrashScene['killAfter'] = async (running, statements, isOver) => {
    let answered = 0
    let diedAt: string | null = null
    proxy.watch(({ sql, at }) => {
      if (at === 'answered') answered++
      if (at === 'answered' ? answered < statements : statements > 0) return undefined
      diedAt = stepOf(sql)
      proxy.watch(() => new Promise(() => {}))
      return new Promise(() => {})
    })
    await eventually(`killed after ${statements} statements, or over`, () => diedAt !== null || isOver(), 30_000)
    await running.kill()
    proxy.watch(() => {})
    return diedAt
  }
  return { start, killAt, killAfter }
}
