import type { Log } from '../log/log.js'
import { waitFor } from '../process/wait.js'
import type { HaproxyPart } from '../protocol/desired.js'
import type { Transition } from '../protocol/messages.js'
import type { Haproxy } from './haproxy.js'
import { planTransition, type RuntimeCommand } from './plan-transition.js'
import { differences, parseServersState, serverStateFile } from './servers-state.js'

/** How long requests under way may end before a server that leaves is cut off from its connections. */
const DRAIN_MS = 500
const DELETE_MS = 5_000

export type Outcome = { transition: Transition; reason: string }

/** Commands that ran before the rest of their change; `failure` says why not all of them did. */
export type HeadStart = { failure: string | null }

/**
 * Brings a change that touches only servers to the traffic, before its file is checked and becomes the current one; carryOut must follow, with
 * the same parts or, to take it back, with the parts exchanged.
 * @returns null when the change needs more than runtime commands; then nothing was done
 */
export async function startAhead(
  haproxy: Haproxy,
  applied: HaproxyPart | null,
  wanted: HaproxyPart | null,
): Promise<HeadStart | null> {
  const plan = planTransition(applied, wanted, { running: haproxy.pid() !== null })
  return plan.kind === 'runtime' ? { failure: await runCommands(haproxy, plan.commands) } : null
}

/**
 * Brings HAProxy from the applied to the wanted part. The wanted configuration file is already the current one.
 * @throws HaproxyFailure
 */
export async function carryOut(
  haproxy: Haproxy,
  applied: HaproxyPart | null,
  wanted: HaproxyPart | null,
  log: Log,
  headStart: HeadStart | null = null,
): Promise<Outcome> {
  const plan = planTransition(applied, wanted, { running: haproxy.pid() !== null })
  switch (plan.kind) {
    case 'stop':
      await haproxy.stop()
      return { transition: 'stop', reason: '' }
    case 'start':
      await haproxy.start()
      return { transition: 'start', reason: '' }
    case 'reload':
      return reload(haproxy, applied, wanted, plan.reason, log)
    case 'unchanged': {
      if (wanted === null) return { transition: 'unchanged', reason: '' }
      const [drift] = await differencesNow(haproxy, wanted)
      if (drift === undefined) return { transition: 'unchanged', reason: '' }
      return reload(haproxy, null, wanted, `HAProxy had drifted: ${drift}`, log)
    }
    case 'runtime': {
      const { failure } = headStart ?? { failure: await runCommands(haproxy, plan.commands) }
      const [drift] = failure === null && wanted !== null ? await differencesNow(haproxy, wanted) : []
      if (failure === null && drift === undefined) return { transition: 'runtime', reason: '' }
      return reload(haproxy, applied, wanted, failure ?? `after the change ${drift}`, log)
    }
  }
}

/** A reload whatever the plan would be. */
export async function reload(
  haproxy: Haproxy,
  applied: HaproxyPart | null,
  wanted: HaproxyPart | null,
  reason: string,
  log: Log,
): Promise<Outcome> {
  log.info(`reload: ${reason}`)
  const dump = await haproxy.command('show servers state').catch(() => '')
  await haproxy.reload(wanted === null ? '1\n' : serverStateFile(applied, wanted, dump))
  return { transition: 'reload', reason }
}

async function differencesNow(haproxy: Haproxy, wanted: HaproxyPart): Promise<string[]> {
  try {
    return differences(wanted, parseServersState(await haproxy.command('show servers state')))
  } catch (error) {
    return [error instanceof Error ? error.message : String(error)]
  }
}

/** @returns null when every command succeeded, else why not */
async function runCommands(haproxy: Haproxy, commands: readonly RuntimeCommand[]): Promise<string | null> {
  const drainedBy = performance.now() + DRAIN_MS
  try {
    for (const command of commands) {
      const failure = await runCommand(haproxy, command, drainedBy)
      if (failure !== null) return failure
    }
    return null
  } catch (error) {
    return error instanceof Error ? error.message : String(error)
  }
}

async function runCommand(haproxy: Haproxy, command: RuntimeCommand, drainedBy: number): Promise<string | null> {
  let answer = await haproxy.command(command.text)
  if (answer === command.expect) return null
  if (command.cutOff !== null) {
    const succeeded = await waitFor(
      async () => {
        if (performance.now() > drainedBy) await haproxy.command(command.cutOff ?? '')
        answer = await haproxy.command(command.text)
        return answer === command.expect ? true : null
      },
      { timeoutMs: DELETE_MS, everyMs: 25 },
    )
    if (succeeded) return null
  }
  return `HAProxy answered "${answer.slice(0, 300)}" to "${command.text.slice(0, 300)}"`
}
