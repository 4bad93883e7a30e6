import { constants } from 'node:os'
import { InvalidArgumentError, Option } from 'commander'
import { newestImages } from '../../../../compute/images/newest.js'
import { imageOf, placementRules } from '../../../../compute/placement.js'
import type { Database } from '../../../../database/connection.js'
import { readAgentBundle } from '../../../../provider/amphora/agent/bundle.js'
import type { Command } from '../../../command.js'
import { OperatorError, UsageError } from '../../../operator-error.js'
import { readHostRecord } from '../../../state-directory/host.js'
import { print, table } from '../../../terminal.js'
import { agentBundle, computeDriverOf } from '../../../wiring/drivers.js'
import type { Instance } from '../../../wiring/instance.js'
import { withRows } from '../with-rows.js'
import { beginUpgrade } from './begin.js'
import { findLoadBalancers, readCandidates, readWorkers, type Selection, type Workers } from './candidates.js'
import { carryOut, type Event, type Outcome } from './carry-out.js'
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
  const hostId = readHostRecord(instance.directory)?.id ?? null
  const target = targetOf(instance, readAgentBundle(agentBundle).sha256)
  const plan = planUpgrade(await readCandidates(database, selection, kind.name, hostId), target)
  for (const line of linesOf(plan, target)) print(line)
  if (plan.upgrades.length === 0 || given.dryRun === true) return 0
  const amphorae = plan.upgrades.map(({ amphora }) => amphora)
  requireWorker(await readWorkers(database, target.bundle, hostId, amphorae), target.bundle)
  const stopping = new AbortController()
  const stop = () => stopping.abort()
  process.once('SIGINT', stop)
  try {
    const outcome = await carryOut(database, plan.upgrades, {
      bundle: target.bundle,
      atOnce: given.atOnce,
      begin: one => beginUpgrade({ database, config: instance.config.load_balancer }, one, target.bundle),
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
  if ('left' in event) return `${short(id)}  is left alone: ${event.left}`
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
  const rules = placementRules(config.compute)
  return { bundle, newestImage: amphora => imageOf(rules, images, amphora) }
}

function linesOf({ upgrades, current, left, elsewhere }: UpgradePlan, { bundle }: Target): string[] {
  const placeOf = ({ loadBalancerId, loadBalancerName }: Candidate) =>
    loadBalancerId === null ? '(in the warm pool)' : `${loadBalancerName ?? ''} ${loadBalancerId}`.trimStart()
  const rows = upgrades.map(({ amphora, way, why }) => [amphora.id, way, why, placeOf(amphora)])
  const replaced = upgrades.filter(({ way }) => way === 'replace').length
  return [
    ...(rows.length === 0 ? [] : table([['amphora', 'way', 'has now', 'load balancer'], ...rows])),
    ...left.map(({ amphora, why }) => `${amphora.id} is left alone: ${why}.`),
    ...[...elsewhere].map(
      ([host, count]) => `${amphoraeOf(count, 'belongs', 'belong')} to the host ${host}. Run the command there too.`,
    ),
    `The agent is ${short(bundle)}. ${upgrades.length} to upgrade: ${upgrades.length - replaced} in place, ${replaced} by replacement. ${current.length === 1 ? '1 is' : `${current.length} are`} current.`,
  ]
}

/** @throws OperatorError if nobody would carry the upgrades out */
function requireWorker({ own, others, here }: Workers, bundle: string): void {
  if (own && here) return
  if (own) throw new OperatorError('No worker runs on this host, and only its workers upgrade its amphorae: krater up')
  throw new OperatorError(
    others > 0
      ? `The workers that run now have another agent than ${short(bundle)}. Restart Krater with this version first: krater up`
      : 'No worker runs, and only workers upgrade amphorae. Start Krater first: krater up',
  )
}

/** @throws OperatorError if an upgrade failed */
function conclude({ done, left, waiting, running, failed }: Outcome, wasStopped: boolean): number {
  const were = `${amphoraeOf(done, 'was', 'were')} upgraded.`
  const rest = waiting + left
  const again = rest > 0 ? ` ${rest} ${rest === 1 ? 'is' : 'are'} left; run the command again to go on.` : ''
  if (failed !== null) {
    const { upgrade, why } = failed
    throw new OperatorError(`The amphora ${upgrade.amphora.id} was not upgraded: ${why}\n${were}${again}`)
  }
  if (wasStopped) {
    const finish =
      running === 0
        ? ''
        : ` Workers finish ${running === 1 ? 'one' : running} that ${running === 1 ? 'has' : 'have'} begun.`
    print(`Stopped. ${were}${finish}${again}`)
    return 128 + constants.signals.SIGINT
  }
  print(`${were}${again}`)
  return 0
}

const amphoraeOf = (count: number, one: string, more: string): string =>
  count === 1 ? `1 amphora ${one}` : `${count} amphorae ${more}`

function parseCount(text: string): number {
  const count = Number(text)
  if (!Number.isInteger(count) || count < 1 || count > 100) {
    throw new InvalidArgumentError('It must be a whole number from 1 to 100.')
  }
  return count
}
