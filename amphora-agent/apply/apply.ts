import type { DatagramBalancer } from '../datagrams/balancer.js'
import { updateChallenges } from '../haproxy/challenges.js'
import type { Drain } from '../haproxy/drain.js'
import { type Haproxy, HaproxyFailure } from '../haproxy/haproxy.js'
import type { KnownDown } from '../haproxy/known-down.js'
import { serverStateFile } from '../haproxy/server-state-file.js'
import { type HeadStart, type Outcome, reload, startAhead, transitionTo } from '../haproxy/transition.js'
import { haproxyConfigurationError } from '../haproxy/validate.js'
import { type Keepalived, keepalivedConfigurationError } from '../keepalived/keepalived.js'
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
import type { Responses } from '../ocsp/responses.js'
import type { Desired, HaproxyPart } from '../protocol/desired.js'
import { type AgentError, AnswerError, type ApplyResult } from '../protocol/messages.js'
import type { Tls } from '../tls/tls.js'
import { keepState, keptState } from './kept.js'
import type { Staged, Store } from './store.js'

export type Parts = {
  store: Store
  haproxy: Haproxy
  drain: Drain
  knownDown: KnownDown
  keepalived: Keepalived
  datagrams: DatagramBalancer
  tls: Tls
  responses: Responses
  log: Log
}

const refusal = (code: AgentError['code'], message: string, details = ''): AnswerError =>
  new AnswerError({ code, message, details })

/**
 * Applies the desired state, or rolls back and reports why. The caller runs one apply at a time.
 * @throws AnswerError
 */
export async function apply(parts: Parts, desired: Desired): Promise<ApplyResult> {
  const { store, log } = parts
  const started = performance.now()
  rejectStale(store, desired)
  store.raiseFence(desired.fence)

  let outcome: Outcome
  try {
    const before = store.confirmed()
    if (before === null) parts.knownDown.assume(desired)
    const staged = store.stage(desired)
    await parts.tls.provide(desired.haproxy, staged.path, store.confirmedDirectory())
    const prepared = await prepare(parts, staged, desired, before)
    outcome = await takeEffect(parts, staged, { before, desired, how: 'cheapest', ...prepared })
  } catch (error) {
    store.discard()
    if (error instanceof AnswerError) throw error
    throw refusal('internal', error instanceof Error ? error.message : String(error))
  }
  const milliseconds = Math.round(performance.now() - started)
  const why = outcome.reason === '' ? '' : ` (${outcome.reason})`
  log.info(`generation ${desired.generation} applied in ${milliseconds} ms: ${outcome.transition}${why}`)
  return {
    appliedGeneration: desired.generation,
    appliedSha256: desired.sha256,
    ...outcome,
    milliseconds,
    missing: parts.tls.missing(),
  }
}

/**
 * Call at the agent's start, after adopting running programs: puts the confirmed state into effect, or finishes the
 * apply that the last agent did not. Failures are logged, since there is no caller to answer; the controller
 * notices them in the reported configuration.
 */
export async function resume(parts: Parts): Promise<void> {
  const { store, keepalived, log } = parts
  const confirmed = store.confirmed()
  const unfinished = store.unfinished()
  const abandoned = store.abandoned()
  try {
    if (unfinished) {
      log.info(`generation ${unfinished.desired.generation} was interrupted while being applied: applying it again`)
      await finish(parts, unfinished, unfinished.desired, confirmed)
      return
    }
    if (abandoned) {
      log.info(
        `generation ${abandoned.generation} was interrupted before taking effect or in its rollback: rolling back`,
      )
      await rollBack(parts, abandoned, confirmed)
      store.discard()
      return
    }
    if (confirmed === null) return await resumeKept(parts)
    const network = await planNetwork(confirmed, confirmed)
    await guard(confirmed.pair)
    await addMissing(network, confirmed, confirmed, log)
    await parts.datagrams.apply(confirmed)
    await transitionTo(parts, confirmed.haproxy, confirmed.haproxy)
    await runKeepalived(keepalived, confirmed, confirmed)
  } catch (error) {
    log.error(`cannot resume: ${describe(error)}`)
    store.discard()
  }
}

/** Goes on with the flows that a draining amphora still has. */
export async function resumeDraining({ store, datagrams, log }: Parts): Promise<void> {
  try {
    await datagrams.apply(store.confirmed())
  } catch (error) {
    log.error(`cannot resume: ${describe(error)}`)
  }
}

/** After a reboot, serves what was served before. The controller need not be there. */
async function resumeKept(parts: Parts): Promise<void> {
  const kept = keptState()
  if (kept === null) return
  parts.log.info(`generation ${kept.generation} was in effect before the reboot: applying it again`)
  await apply(parts, kept)
}

/**
 * Checks a change before it takes effect. Changes of members alone take effect ahead of the check: HAProxy checks each
 * command itself, so traffic need not wait for the check of the whole file. If that fails, they are undone.
 */
async function prepare(
  parts: Parts,
  staged: Staged,
  desired: Desired,
  before: Desired | null,
): Promise<Pick<Change, 'network' | 'headStart' | 'isChecked'>> {
  const { log } = parts
  const onlyBalancing = before !== null && hasSameNetwork(before, desired)
  const isChecked = !onlyBalancing || !changesOnlyFiles(parts, before.haproxy, desired.haproxy)
  const headStart = onlyBalancing ? await startAhead(parts, before.haproxy, desired.haproxy) : null
  try {
    const named = async () =>
      nameInterfaces(await planPluggedInterfaces(desired, before), desired, withVipInterfacesOnly(before), log)
    // Leave repairs of the network to the reconciler: reading the network waits for any change of a network on the
    // host.
    const leavesNetwork = onlyBalancing && before.sha256 !== desired.sha256
    const [network] = await Promise.all([
      leavesNetwork ? NO_CHANGE : named(),
      ...(isChecked ? [checkHaproxyFile(staged)] : []),
    ])
    if (!onlyBalancing) await checkKeepalivedFile(staged)
    return { network, headStart, isChecked }
  } catch (error) {
    if (headStart !== null) {
      log.warn(`generation ${desired.generation} took effect ahead of its check, which failed: undoing it`)
      await transitionTo(parts, desired.haproxy, before?.haproxy ?? null)
    }
    throw error
  }
}

/**
 * Whether only what HAProxy reads beside its own file differs, such as certificates. HAProxy checks each of these itself
 * when it takes them over, so traffic need not wait for the check of the whole.
 */
const changesOnlyFiles = ({ haproxy }: Parts, before: HaproxyPart | null, desired: HaproxyPart | null): boolean =>
  haproxy.pid() !== null && before !== null && before.sha256 === desired?.sha256

/** HAProxy may run either configuration, so finishing and rolling back both need a reload. */
async function finish(parts: Parts, staged: Staged, desired: Desired, before: Desired | null): Promise<void> {
  let network: InterfacePlan
  try {
    network = await planPluggedInterfaces(desired, before)
  } catch (error) {
    parts.store.revert()
    await rollBack(parts, desired, before)
    throw error
  }
  await takeEffect(parts, staged, { before, desired, network, how: 'reload', headStart: null, isChecked: true })
}

function rejectStale(store: Store, desired: Desired): void {
  const confirmed = store.confirmed()
  if (desired.fence < store.highestFence()) {
    throw refusal('stale-fence', `fence ${desired.fence} is lower than ${store.highestFence()}`)
  }
  if (confirmed === null) return
  if (confirmed.loadBalancerId !== desired.loadBalancerId) {
    throw refusal('malformed', `this amphora serves load balancer ${confirmed.loadBalancerId}`)
  }
  if (desired.generation < confirmed.generation) {
    throw refusal('stale-generation', `generation ${desired.generation} is older than ${confirmed.generation}`)
  }
}

async function checkHaproxyFile({ haproxyFile }: Staged): Promise<void> {
  const error = haproxyFile === null ? null : await haproxyConfigurationError(haproxyFile)
  if (error !== null) throw refusal('invalid-configuration', 'HAProxy rejects its configuration', error)
}

/** Call only after the interfaces have their names. */
async function checkKeepalivedFile({ keepalivedFile }: Staged): Promise<void> {
  const error = keepalivedFile === null ? null : await keepalivedConfigurationError(keepalivedFile)
  if (error !== null) throw refusal('invalid-configuration', 'keepalived rejects its configuration', error)
}

async function planPluggedInterfaces(desired: Desired, before: Desired | null): Promise<InterfacePlan> {
  const missing = await missingInterfaces(desired.interfaces)
  if (missing.length > 0)
    throw refusal('interface-missing', `no network interface has MAC address ${missing.join(', ')}`)
  return planNetwork(desired, withVipInterfacesOnly(before))
}

/**
 * The former state without the interfaces that keep their addresses until they are unplugged. These are the ones
 * without VIPs: requests to removed members may still use them.
 */
function withVipInterfacesOnly(before: Desired | null): Desired | null {
  return before && { ...before, interfaces: before.interfaces.filter(({ vips }) => vips.length > 0) }
}

type Change = {
  before: Desired | null
  desired: Desired
  network: InterfacePlan
  how: 'cheapest' | 'reload'
  headStart: HeadStart | null
  /** If false, the check follows once the change has taken effect. */
  isChecked: boolean
}

/**
 * Switches the files, applies the change and confirms it. On failure, rolls back; the caller discards.
 * @throws AnswerError
 */
async function takeEffect(parts: Parts, staged: Staged, change: Change): Promise<Outcome> {
  const { store, haproxy, keepalived, log } = parts
  const { before, desired, network, how, headStart, isChecked } = change
  try {
    store.activate(staged)
    const guardChanges = how === 'reload' || !isSamePair(before, desired)
    if (guardChanges && desired.pair !== null) await guard(desired.pair)
    const present = await addMissing(network, desired, withVipInterfacesOnly(before), log)
    const datagramsChanged = await parts.datagrams.apply(desired)
    const forced = how === 'reload' && desired.haproxy !== null && haproxy.pid() !== null
    const outcome = forced
      ? await reload(parts, before?.haproxy ?? null, desired.haproxy, 'an apply was interrupted')
      : await updateFiles(
          parts,
          before,
          desired,
          await transitionTo(parts, before?.haproxy ?? null, desired.haproxy, headStart),
        )
    if (!isChecked) await checkHaproxyFile(staged)
    const keepalivedChanged = await runKeepalived(keepalived, before, desired)
    // Remove the guard last: what it protects may have listened until now.
    if (guardChanges && desired.pair === null) await guard(null)
    await removeLeftovers(present, log)
    store.confirm(staged)
    parts.tls.prune([staged.path])
    keepState(desired)
    const changed = guardChanges || keepalivedChanged || datagramsChanged || !isEmpty(network)
    return outcome.transition === 'unchanged' && changed ? { transition: 'runtime', reason: '' } : outcome
  } catch (error) {
    log.error(`generation ${desired.generation} failed: ${describe(error)}`)
    store.revert()
    const worse = await rollBack(parts, desired, before)
    const details = [error instanceof HaproxyFailure ? error.output : '', worse].filter(Boolean).join('\n')
    throw refusal('rolled-back', error instanceof Error ? error.message : String(error), details)
  }
}

/** Certificates and challenges change without a reload, unless HAProxy reloads anyway or cannot take one over. */
async function updateFiles(
  parts: Parts,
  before: Desired | null,
  { haproxy }: Desired,
  outcome: Outcome,
): Promise<Outcome> {
  if (haproxy === null || (outcome.transition !== 'unchanged' && outcome.transition !== 'runtime')) return outcome
  const updates = [
    await parts.tls.update(),
    await updateChallenges(parts.haproxy, before?.haproxy?.challenges, haproxy.challenges),
  ]
  for (const update of updates) if (typeof update === 'object') return reload(parts, haproxy, haproxy, update.reload)
  return updates.includes('runtime') ? { transition: 'runtime', reason: '' } : outcome
}

/** @returns why the rollback failed; empty if it succeeded */
async function rollBack(parts: Parts, failed: Desired, before: Desired | null): Promise<string> {
  const { haproxy, keepalived, log } = parts
  try {
    const former = before === null ? failed : withVipInterfacesOnly(failed)
    const plan = await planNetwork(before, former)
    const network = before === null ? plan : await addMissing(plan, before, former, log)
    await parts.datagrams.apply(before)
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

/** Whether all but the balancing is the same: interfaces, keepalived and peers. */
function hasSameNetwork(one: Desired, other: Desired): boolean {
  const beside = ({ interfaces, keepalived, pair, datagrams }: Desired) =>
    JSON.stringify([interfaces, keepalived?.sha256, pair, Boolean(datagrams)])
  return beside(one) === beside(other)
}

function isSamePair(before: Desired | null, desired: Desired): boolean {
  return JSON.stringify(before?.pair ?? null) === JSON.stringify(desired.pair)
}

/** @returns whether it had to change something */
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

/** Removes the VIPs that keepalived leaves behind when it exits: the peer takes them over. */
export async function releaseOwnVips({ store, log }: Pick<Parts, 'store' | 'log'>): Promise<void> {
  await releaseVips(store.confirmed()?.interfaces ?? [], log)
}

function describe(error: unknown): string {
  if (error instanceof HaproxyFailure) return `${error.message} ${error.output}`
  return error instanceof Error ? error.message : String(error)
}
