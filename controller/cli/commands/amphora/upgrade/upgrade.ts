import { randomUUID } from 'node:crypto'
import { constants } from 'node:os'
import { InvalidArgumentError, Option } from 'commander'
import { newestImages } from '../../../../compute/images/newest.js'
import { DEFAULT_IMAGE_TAG } from '../../../../compute/images/tags.js'
import { placementRules } from '../../../../compute/placement.js'
import type { Database } from '../../../../database/connection.js'
import { execute } from '../../../../database/query.js'
import { sql } from '../../../../database/sql.js'
import { ApiError } from '../../../../http/errors.js'
import { changeLoadBalancer } from '../../../../load-balancer/change/change.js'
import type { RequestDetail } from '../../../../load-balancer/change/events.js'
import { replaceOne } from '../../../../load-balancer/change/replace-amphorae.js'
import { markUpgrade } from '../../../../provider/amphora/act/mark-upgrade.js'
import { readAgentBundle } from '../../../../provider/amphora/agent/bundle.js'
import type { Command } from '../../../command.js'
import { OperatorError, UsageError } from '../../../operator-error.js'
import { print, table } from '../../../terminal.js'
import { agentBundle, computeDriverOf } from '../../../wiring/drivers.js'
import type { Instance } from '../../../wiring/instance.js'
import { withRows } from '../with-rows.js'
import { findLoadBalancers, readCandidates, readWorkers, type Selection } from './candidates.js'
import { type Begin, carryOut, type Event, type Outcome } from './carry-out.js'
import { type Candidate, planUpgrade, short, type Target, type Upgrade, type UpgradePlan } from './plan-upgrade.js'

type Given = { loadBalancer?: string; imageTag?: string; atOnce: number; dryRun?: boolean }

export const command: Command = {
  options: [
    new Option('--load-balancer <id>', 'only the amphorae of this load balancer, by its id or name'),
    new Option('--image-tag <tag>', 'only amphorae that run an image with this tag'),
    new Option('--at-once <n>', 'number of amphorae to upgrade at a time').argParser(parseCount).default(3),
    new Option('--dry-run', 'only say what would be done'),
  ],
  run: (directory, given: Given) => withRows(directory, (instance, database) => upgrade(instance, database, given)),
}

async function upgrade(instance: Instance, database: Database, given: Given): Promise<number> {
  const kind = computeDriverOf(instance)
  if (!kind.runsMachines) throw new OperatorError(`The compute driver ${kind.name} runs no machines.`)
  const selection = await select(database, given)
  const target = targetOf(instance, readAgentBundle(agentBundle).sha256)
  const plan = planUpgrade(await readCandidates(database, selection, kind.name), target)
  for (const line of linesOf(plan, target)) print(line)
  if (plan.upgrades.length === 0 || given.dryRun === true) return 0
  await requireWorker(database, target.bundle)
  const stopping = new AbortController()
  const stop = () => stopping.abort()
  process.once('SIGINT', stop)
  try {
    const outcome = await carryOut(database, plan.upgrades, {
      bundle: target.bundle,
      atOnce: given.atOnce,
      begin: beginWith(instance, database, target.bundle),
      signal: stopping.signal,
      report: (one, event) => print(progressLine(one, event, plan.upgrades.length)),
    })
    return conclude(outcome, stopping.signal.aborted)
  } finally {
    process.removeListener('SIGINT', stop)
  }
}

function progressLine({ amphora: { id }, way }: Upgrade, event: Event, all: number): string {
  const what = way === 'in place' ? 'upgraded in place' : 'replaced'
  if (event === 'begun') return `${short(id)}  is being ${what}`
  return `${short(id)}  ${what} in ${event.seconds.toFixed(1)} s (${event.done} of ${all})`
}

async function select(database: Database, given: Given): Promise<Selection> {
  const { loadBalancer } = given
  const imageTag = given.imageTag ?? null
  if (loadBalancer === undefined) return { loadBalancerId: null, imageTag }
  const found = await findLoadBalancers(database, loadBalancer)
  const [loadBalancerId] = found
  if (loadBalancerId === undefined) throw new UsageError(`There is no load balancer ${loadBalancer}.`)
  if (found.length > 1)
    throw new UsageError(`${loadBalancer} is the name of ${found.length} load balancers: ${found.join(', ')}`)
  return { loadBalancerId, imageTag }
}

function targetOf({ directory, config }: Instance, bundle: string): Target {
  const images = newestImages(directory)
  const { drivers } = placementRules(config.compute)
  const newestImage = ({ driver, imageTag }: Candidate) =>
    (drivers.get(driver)?.images ?? 'none') === 'none' ? null : (images.get(imageTag ?? DEFAULT_IMAGE_TAG) ?? null)
  return { bundle, newestImage }
}

function linesOf({ upgrades, current, left }: UpgradePlan, { bundle }: Target): string[] {
  const placeOf = ({ loadBalancerId, loadBalancerName }: Candidate) =>
    loadBalancerId === null ? '(in the warm pool)' : `${loadBalancerName ?? ''} ${loadBalancerId}`.trimStart()
  const rows = upgrades.map(({ amphora, way, why }) => [amphora.id, way, why, placeOf(amphora)])
  const replaced = upgrades.filter(({ way }) => way === 'replace').length
  return [
    ...(rows.length === 0 ? [] : table([['amphora', 'way', 'has now', 'load balancer'], ...rows])),
    ...left.map(({ amphora, why }) => `${amphora.id} is left alone: ${why}.`),
    `The agent is ${short(bundle)}. ${upgrades.length} to upgrade: ${upgrades.length - replaced} in place, ${replaced} by replacement. ${current.length} are current.`,
  ]
}

/** @throws OperatorError if nobody would carry the upgrades out */
async function requireWorker(database: Database, bundle: string): Promise<void> {
  const { own, others } = await readWorkers(database, bundle)
  if (own) return
  throw new OperatorError(
    others > 0
      ? `The workers that run now have another agent than ${short(bundle)}. Restart Krater with this version first: krater up`
      : 'No worker runs, and only workers upgrade amphorae. Start Krater first: krater up',
  )
}

/** An upgrade that has begun already, before this command was interrupted, goes on. */
function beginWith({ config }: Instance, database: Database, bundle: string): Begin {
  return async ({ amphora, way }) => {
    const { id, loadBalancerId, replaceGeneration, upgradeTo } = amphora
    if (way === 'in place') {
      if (upgradeTo !== bundle) await markUpgrade(database, id, bundle)
      return null
    }
    if (replaceGeneration !== null) return replaceGeneration
    if (loadBalancerId === null) {
      await execute(
        database,
        sql`UPDATE amphora SET status = 'PENDING_DELETE', updated_at = now()
             WHERE id = ${id} AND status = 'READY' AND load_balancer_id IS NULL`,
      )
      return null
    }
    const service = { database, config: config.load_balancer }
    try {
      return await changeLoadBalancer(service, detailOf(amphora), loadBalancerId, async (trx, changed) => {
        await replaceOne(trx, changed, id)
        return changed.generation
      })
    } catch (error) {
      // The load balancer is being deleted, and its amphorae with it.
      if (error instanceof ApiError) return null
      throw error
    }
  }
}

/** For the history of the load balancer. */
const detailOf = ({ id }: Candidate): RequestDetail => ({
  action: 'failover',
  object_type: 'amphora',
  object_id: id,
  changes: {},
  user_id: '',
  user_name: 'krater amphora upgrade',
  project_id: null,
  request_id: `req-${randomUUID()}`,
})

/** @throws OperatorError if an upgrade failed */
function conclude({ done, waiting, running, failed }: Outcome, wasStopped: boolean): number {
  const rest = waiting > 0 ? ` ${waiting} ${waiting === 1 ? 'is' : 'are'} left; run the command again to go on.` : ''
  if (failed !== null) {
    const { upgrade, why } = failed
    throw new OperatorError(`The amphora ${upgrade.amphora.id} was not upgraded: ${why}\n${done} were upgraded.${rest}`)
  }
  if (wasStopped) {
    print(`Stopped. ${done} were upgraded, and workers finish ${running} that have begun.${rest}`)
    return 128 + constants.signals.SIGINT
  }
  print(`${done} ${done === 1 ? 'amphora was' : 'amphorae were'} upgraded.`)
  return 0
}

function parseCount(text: string): number {
  const count = Number(text)
  if (!Number.isInteger(count) || count < 1 || count > 100) {
    throw new InvalidArgumentError('It must be a whole number from 1 to 100.')
  }
  return count
}
