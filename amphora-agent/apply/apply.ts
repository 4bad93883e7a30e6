import type { Drain } from '../haproxy/drain.js'
import { type Haproxy, HaproxyFailure } from '../haproxy/haproxy.js'
import type { KnownDown } from '../haproxy/known-down.js'
import { serverStateFile } from '../haproxy/server-state-file.js'
import { type HeadStart, type Outcome, reload, startAhead, transitionTo } from '../haproxy/transition.js'
import { refusalOf } from '../haproxy/validate.js'
import { type Keepalived, keepalivedRefusalOf } from '../keepalived/keepalived.js'
import type { Log } from '../log/log.js'
import {
  addMissing,
  isEmpty,
  missingInterfaces,
  nameInterfaces,
  planNetwork,
  releaseVips,
  removeLeftovers,
} from '../network/configure.js'
import { guard } from '../network/guard.js'
import { type InterfacePlan, NO_CHANGE } from '../network/plan-interfaces.js'
import type { Desired } from '../protocol/desired.js'
import { type AgentError, AnswerError, type ApplyResult } from '../protocol/messages.js'
import type { Staged, Store } from './store.js'

export type Parts = {
  store: Store
  haproxy: Haproxy
  drain: Drain
  knownDown: KnownDown
  keepalived: Keepalived
  log: Log
}

const refuse = (code: AgentError['code'], message: string, details = ''): AnswerError =>
  new AnswerError({ code, message, details })

/**
 * Makes the machine what `desired` says, or leaves it as it was and says why. The caller runs one apply at a time.
 * @throws AnswerError
 */
export async function apply(parts: Parts, desired: Desired): Promise<ApplyResult> {
  const { store, log } = parts
  const started = performance.now()
  refuseStale(store, desired)
  store.raiseFence(desired.fence)

  let outcome: Outcome
  try {
    const before = store.confirmed()
    if (before === null) parts.knownDown.suppose(desired)
    const staged = store.stage(desired)
    const prepared = await prepare(parts, staged, desired, before)
    outcome = await takeEffect(parts, staged, { before, desired, how: 'cheapest', ...prepared })
  } catch (error) {
    store.discard()
    if (error instanceof AnswerError) throw error
    throw refuse('internal', error instanceof Error ? error.message : String(error))
  }
  const milliseconds = Math.round(performance.now() - started)
  const why = outcome.reason === '' ? '' : ` (${outcome.reason})`
  log.info(`generation ${desired.generation} applied in ${milliseconds} ms: ${outcome.transition}${why}`)
  return { appliedGeneration: desired.generation, appliedSha256: desired.sha256, ...outcome, milliseconds }
}

/**
 * For the agent's start, when running programs have been adopted: what was confirmed, or was being applied when the last agent died, is in effect afterwards.
 * What fails is logged, since nobody waits for an answer; the controller sees it by the reported configuration.
 */
export async function resume(parts: Parts): Promise<void> {
  const { store, keepalived, log } = parts
  const confirmed = store.confirmed()
  const unfinished = store.unfinished()
  const abandoned = store.abandoned()
  try {
    if (unfinished) {
      log.info(`generation ${unfinished.desired.generation} was being applied: going on`)
      await finish(parts, unfinished, unfinished.desired, confirmed)
      return
    }
    if (abandoned) {
      log.info(`generation ${abandoned.generation} was not in effect yet, or was being rolled back: going back`)
      await rollBack(parts, abandoned, confirmed)
      store.discard()
      return
    }
    if (confirmed === null) return
    const network = await planNetwork(confirmed, confirmed)
    await guard(confirmed.pair)
    await addMissing(network, confirmed, confirmed, log)
    await transitionTo(parts, confirmed.haproxy, confirmed.haproxy)
    await runKeepalived(keepalived, confirmed, confirmed)
  } catch (error) {
    log.error(`not resumed: ${describe(error)}`)
    store.discard()
  }
}

/**
 * Checks all that a change needs before it may take effect. Members alone go ahead: HAProxy checks every command itself, so traffic need not
 * wait for the check of the whole file; when that fails, they are taken back.
 */
async function prepare(
  parts: Parts,
  staged: Staged,
  desired: Desired,
  before: Desired | null,
): Promise<{ network: InterfacePlan; headStart: HeadStart | null }> {
  const { log } = parts
  const onlyHaproxy = before !== null && isSameBesideHaproxy(before, desired)
  const headStart = onlyHaproxy ? await startAhead(parts, before.haproxy, desired.haproxy) : null
  try {
    const named = async () =>
      nameInterfaces(await planPluggedInterfaces(desired, before), desired, withoutKept(before), log)
    // What the network has lost meanwhile is for the comparing loop: to look, one waits for whoever just changes a network, somewhere on the host.
    const leavesNetwork = onlyHaproxy && before.sha256 !== desired.sha256
    const [network] = await Promise.all([leavesNetwork ? NO_CHANGE : named(), refuseHaproxy(staged)])
    if (!onlyHaproxy) await refuseKeepalived(staged)
    return { network, headStart }
  } catch (error) {
    if (headStart !== null) {
      log.warn(`generation ${desired.generation} was ahead of its check and is taken back`)
      await transitionTo(parts, desired.haproxy, before?.haproxy ?? null)
    }
    throw error
  }
}

/** HAProxy may run either configuration by now, so both ways lead through a reload. */
async function finish(parts: Parts, staged: Staged, desired: Desired, before: Desired | null): Promise<void> {
  let network: InterfacePlan
  try {
    network = await planPluggedInterfaces(desired, before)
  } catch (error) {
    parts.store.revert()
    await rollBack(parts, desired, before)
    throw error
  }
  await takeEffect(parts, staged, { before, desired, network, how: 'reload', headStart: null })
}

function refuseStale(store: Store, desired: Desired): void {
  const confirmed = store.confirmed()
  if (desired.fence < store.highestFence()) {
    throw refuse('stale-fence', `fence ${desired.fence} is older than ${store.highestFence()}`)
  }
  if (confirmed === null) return
  if (confirmed.loadBalancerId !== desired.loadBalancerId) {
    throw refuse('malformed', `this amphora carries load balancer ${confirmed.loadBalancerId}`)
  }
  if (desired.generation < confirmed.generation) {
    throw refuse('stale-generation', `generation ${desired.generation} is older than ${confirmed.generation}`)
  }
}

async function refuseHaproxy({ haproxyFile }: Staged): Promise<void> {
  const words = haproxyFile === null ? null : await refusalOf(haproxyFile)
  if (words !== null) throw refuse('invalid-configuration', 'HAProxy refuses its configuration', words)
}

/** Only when the interfaces have their names. */
async function refuseKeepalived({ keepalivedFile }: Staged): Promise<void> {
  const words = keepalivedFile === null ? null : await keepalivedRefusalOf(keepalivedFile)
  if (words !== null) throw refuse('invalid-configuration', 'keepalived refuses its configuration', words)
}

async function planPluggedInterfaces(desired: Desired, before: Desired | null): Promise<InterfacePlan> {
  const missing = await missingInterfaces(desired.interfaces)
  if (missing.length > 0)
    throw refuse('interface-missing', `no network interface has the address ${missing.join(', ')}`)
  return planNetwork(desired, withoutKept(before))
}

/**
 * The former state without the interfaces that keep their addresses until they are unplugged: those without VIPs, by which requests to members
 * that left may still be under way.
 */
function withoutKept(before: Desired | null): Desired | null {
  return before && { ...before, interfaces: before.interfaces.filter(({ vips }) => vips.length > 0) }
}

type Change = {
  before: Desired | null
  desired: Desired
  network: InterfacePlan
  how: 'cheapest' | 'reload'
  headStart: HeadStart | null
}

/** From the switch of the files to the confirmation; on any failure back to where it was, and the caller discards. @throws AnswerError */
async function takeEffect(parts: Parts, staged: Staged, change: Change): Promise<Outcome> {
  const { store, haproxy, keepalived, log } = parts
  const { before, desired, network, how, headStart } = change
  try {
    store.activate(staged)
    const guardChanges = how === 'reload' || !isSamePair(before, desired)
    if (guardChanges && desired.pair !== null) await guard(desired.pair)
    const present = await addMissing(network, desired, withoutKept(before), log)
    const forced = how === 'reload' && desired.haproxy !== null && haproxy.pid() !== null
    const outcome = forced
      ? await reload(parts, before?.haproxy ?? null, desired.haproxy, 'an apply was cut off')
      : await transitionTo(parts, before?.haproxy ?? null, desired.haproxy, headStart)
    const keepalivedChanged = await runKeepalived(keepalived, before, desired)
    // Not before, for what it guards may have listened until now.
    if (guardChanges && desired.pair === null) await guard(null)
    await removeLeftovers(present, log)
    store.confirm(staged)
    const changed = guardChanges || keepalivedChanged || !isEmpty(network)
    return outcome.transition === 'unchanged' && changed ? { transition: 'runtime', reason: '' } : outcome
  } catch (error) {
    log.error(`generation ${desired.generation} failed: ${describe(error)}`)
    store.revert()
    const worse = await rollBack(parts, desired, before)
    const details = [error instanceof HaproxyFailure ? error.words : '', worse].filter(Boolean).join('\n')
    throw refuse('rolled-back', error instanceof Error ? error.message : String(error), details)
  }
}

/** @returns what went wrong even here, else an empty text */
async function rollBack(parts: Parts, failed: Desired, before: Desired | null): Promise<string> {
  const { haproxy, keepalived, log } = parts
  try {
    const former = before === null ? failed : withoutKept(failed)
    const plan = await planNetwork(before, former)
    const network = before === null ? plan : await addMissing(plan, before, former, log)
    if (before?.haproxy) {
      if (haproxy.pid() === null) await haproxy.start(serverStateFile(null, before.haproxy, parts.knownDown.keys()))
      else await reload(parts, failed.haproxy, before.haproxy, 'rolling back')
    } else await haproxy.stop()
    await runKeepalived(keepalived, failed, before)
    if (!isSamePair(before, failed)) await guard(before?.pair ?? null)
    await removeLeftovers(network, log)
    return ''
  } catch (error) {
    log.error(`rolling back failed: ${describe(error)}`)
    return `rolling back failed: ${describe(error)}`
  }
}

/** What the amphora is beside HAProxy's part: its interfaces, keepalived and whom it speaks to. */
function isSameBesideHaproxy(one: Desired, other: Desired): boolean {
  const beside = ({ interfaces, keepalived, pair }: Desired) => JSON.stringify([interfaces, keepalived?.sha256, pair])
  return beside(one) === beside(other)
}

function isSamePair(before: Desired | null, desired: Desired): boolean {
  return JSON.stringify(before?.pair ?? null) === JSON.stringify(desired.pair)
}

/** @returns true when it had to change something */
export async function runKeepalived(
  keepalived: Keepalived,
  before: Desired | null,
  desired: Desired | null,
): Promise<boolean> {
  const running = keepalived.pid() !== null
  if (!desired?.keepalived) {
    if (running) await keepalived.stop()
    return running
  }
  if (!running) await keepalived.start()
  else if (before?.keepalived?.sha256 !== desired.keepalived.sha256) await keepalived.reload()
  else return false
  return true
}

/** What keepalived must not leave behind when it ends: the peer takes the VIPs over. */
export async function releaseOwnVips({ store, log }: Pick<Parts, 'store' | 'log'>): Promise<void> {
  await releaseVips(store.confirmed()?.interfaces ?? [], log)
}

function describe(error: unknown): string {
  if (error instanceof HaproxyFailure) return `${error.message} ${error.words}`
  return error instanceof Error ? error.message : String(error)
}
