import type { Log } from '../log/log.js'
import type { HaproxyPart } from '../protocol/desired.js'
import type { Transition } from '../protocol/messages.js'
import type { Drain } from './drain.js'
import type { Haproxy } from './haproxy.js'
import type { KnownDown } from './known-down.js'
import { downMemberKeys } from './known-down.js'
import { afterReload, commandsFor, monotonicMs, serversLeaving, serversToDisableBeforeReload } from './leaving.js'
import { differences } from './plan-repair.js'
import { type HaproxyFacts, joinCommands, planTransition, type RuntimeCommand } from './plan-transition.js'
import { parseServersState } from './runtime/servers-state.js'
import { serverStateFile } from './server-state-file.js'

export type Outcome = { transition: Transition; reason: string }

type Parts = { haproxy: Haproxy; drain: Drain; knownDown: KnownDown; log: Log }

/** An empty server-state file. */
const NO_STATES = '1\n'

/** The runtime commands of a change ran before the rest of it; `failure` says why one failed. */
export type HeadStart = { failure: string | null }

/**
 * Applies a change that needs no reload before its file is checked and becomes the current one. transitionTo must
 * follow, with the same parts or, to undo the change, with the parts swapped.
 * @returns null if the change needs more than runtime commands; then nothing was done
 */
export async function startAhead(
  { haproxy, drain }: Parts,
  applied: HaproxyPart | null,
  desired: HaproxyPart | null,
): Promise<HeadStart | null> {
  const plan = planTransition(applied, desired, await readFacts({ haproxy, drain }, desired))
  if (plan.kind !== 'runtime') return null
  drain.begin(plan.leaving)
  return { failure: await runCommands(haproxy, plan.commands) }
}

/**
 * Changes HAProxy from the applied to the desired part. The desired configuration file is already the current one.
 * Leaving servers are out of service afterwards; their connections continue, and the drain closes them in time.
 * @throws HaproxyFailure
 */
export async function transitionTo(
  parts: Parts,
  applied: HaproxyPart | null,
  desired: HaproxyPart | null,
  headStart: HeadStart | null = null,
): Promise<Outcome> {
  const { haproxy, drain, knownDown } = parts
  const plan = planTransition(applied, desired, await readFacts(parts, desired))
  switch (plan.kind) {
    case 'stop':
      drain.begin(plan.leaving)
      await haproxy.stop()
      return { transition: 'stop', reason: '' }
    case 'retire':
      drain.beginToStop(plan.leaving)
      await haproxy.reload(NO_STATES)
      return { transition: 'stop', reason: '' }
    case 'start':
      drain.begin(plan.leaving)
      await haproxy.start(desired === null ? NO_STATES : serverStateFile(null, desired, knownDown.keys()))
      return { transition: 'start', reason: '' }
    case 'reload':
      return reload(parts, applied, desired, plan.reason)
    case 'unchanged': {
      if (desired === null) {
        if (haproxy.pid() !== null) drain.beginToStop(plan.leaving)
        return { transition: 'unchanged', reason: '' }
      }
      drain.begin(plan.leaving)
      const [drift] = await differencesNow(parts, desired)
      if (drift === undefined) return { transition: 'unchanged', reason: '' }
      return reload(parts, null, desired, `HAProxy drifted: ${drift}`)
    }
    case 'runtime': {
      drain.begin(plan.leaving)
      const { failure } = headStart ?? { failure: await runCommands(haproxy, plan.commands) }
      const [drift] = failure === null && desired !== null ? await differencesNow(parts, desired) : []
      if (failure === null && drift === undefined) return { transition: 'runtime', reason: '' }
      return reload(parts, applied, desired, failure ?? `after the change, ${drift}`)
    }
  }
}

/** Reloads without a plan. @param applied what HAProxy runs; null if unknown */
export async function reload(
  { haproxy, drain, knownDown, log }: Parts,
  applied: HaproxyPart | null,
  desired: HaproxyPart | null,
  reason: string,
): Promise<Outcome> {
  log.info(`reload: ${reason}`)
  const dump = await haproxy.command('show servers state').catch(() => '')
  const leaving = afterReload(serversLeaving(drain.leaving(), applied, desired, monotonicMs()))
  const first = serversToDisableBeforeReload(applied, desired)
  for (const one of first) await haproxy.command(commandsFor(one).takeOut).catch(() => '')
  try {
    const down = dump === '' ? knownDown.keys() : downMemberKeys(parseServersState(dump))
    await haproxy.reload(desired === null ? NO_STATES : serverStateFile({ applied, dump }, desired, down))
  } catch (error) {
    for (const one of first) await haproxy.command(commandsFor(one).bringBack).catch(() => '')
    throw error
  }
  drain.begin(leaving)
  drain.reloaded()
  return { transition: 'reload', reason }
}

async function readFacts(
  { haproxy, drain }: Pick<Parts, 'haproxy' | 'drain'>,
  desired: HaproxyPart | null,
): Promise<HaproxyFacts> {
  return {
    running: haproxy.pid() !== null,
    // Old workers matter only if nothing is to be served, and a query costs time.
    hasOldWorkers: desired === null && (await hasOldWorkers(haproxy)),
    leaving: drain.leaving(),
    now: monotonicMs(),
  }
}

async function hasOldWorkers(haproxy: Haproxy): Promise<boolean> {
  const processes = haproxy.pid() === null ? null : await haproxy.processes()
  return processes !== null && processes.oldWorkerPids.length > 0
}

async function differencesNow({ haproxy, drain }: Parts, desired: HaproxyPart): Promise<string[]> {
  try {
    const states = parseServersState(await haproxy.command('show servers state'))
    return differences(desired, states, drain.leaving())
  } catch (error) {
    return [error instanceof Error ? error.message : String(error)]
  }
}

/** @returns null if every command succeeded, else why one failed */
async function runCommands(haproxy: Haproxy, commands: readonly RuntimeCommand[]): Promise<string | null> {
  try {
    for (const { text, expect } of joinCommands(commands)) {
      const answer = await haproxy.command(text)
      if (answer !== expect) return `HAProxy answered "${answer.slice(0, 300)}" to "${text.slice(0, 300)}"`
    }
    return null
  } catch (error) {
    return error instanceof Error ? error.message : String(error)
  }
}
