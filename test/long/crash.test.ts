import { setTimeout as delay } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { ApiRefusal } from '../../controller/cli/api-client.js'
import { ask } from '../../controller/cli/commands/demo/traffic.js'
import { runningPostmaster } from '../../controller/cli/host/postgres.js'
import { runningProcesses } from '../../controller/cli/state-directory/run-record.js'
import { killIfThere, processesInside, startRequests } from '../support/faults/crash-amphora.js'
import { balancersOf } from '../support/faults/crash-balancer.js'
import { openDatabases, takeInventory } from '../support/faults/crash-inventory.js'
import { convergesOf, startWorker, type TestWorker, type WorkerLine } from '../support/faults/crash-worker.js'
import { createSites, type Site } from '../support/services/web-servers.js'
import { startKrater, until } from '../support/worlds/krater.js'

/**
 * Longest time from the restart of a killed process until everything is as requested: ten seconds on an idle
 * machine, more while other tests use the processor.
 */
const BOUND_MS = 30_000

const krater = await startKrater(t, {
  KRATER_LOG_LEVEL: 'debug',
  KRATER_COMPUTE_WARM_AMPHORAE: '0',
  KRATER_HOUSEKEEPING_SWEEP_INTERVAL: '1',
})
const WARM = { KRATER_COMPUTE_WARM_AMPHORAE: '1' }
const databases = openDatabases(t, krater)
const { one, two } = await createSites(t, krater, ['one', 'two'])
const api = await krater.api()
const { subnets } = (await api.request('network', 'GET', '/v2.0/subnets?name=public-subnet')) as {
  subnets: { id: string }[]
}
const balancers = balancersOf(api, subnets[0]!.id)

/**
 * Nothing leaked and nothing is missing; housekeeping gets some seconds to remove leftovers of interrupted
 * work.
 */
async function nothingLeaked(t: Test) {
  let inventory = await takeInventory(krater, databases)
  await until('the inventory is as expected', async () => {
    inventory = await takeInventory(krater, databases)
    return String(inventory.is) === String(inventory.shouldBe)
  }).catch(() => undefined)
  t.same(inventory.is, inventory.shouldBe, 'nothing leaked, nothing is missing')
}

/**
 * Stops the service's own worker, so that the test's workers do all work: killing them causes no growing
 * supervisor pauses.
 */
function pauseOwnWorker(t: Test) {
  const { pid } = runningProcesses(krater.directory).find(({ name }) => name === 'worker')!.identity
  process.kill(pid, 'SIGSTOP')
  t.teardown(() => process.kill(pid, 'SIGCONT'))
}

await t.test('a worker dies before and after each kind of step, and the next one continues', async t => {
  pauseOwnWorker(t)
  const diedAt = new Set<string>()
  /** Changes that ran without a new step to die at. */
  const isThrough = new Set<string>()
  let worker = await startWorker(krater)
  t.teardown(() => worker.kill())
  /** Generations in effect when a change was requested: a worker may report late that it converged them. */
  const inEffect = new Map<string, number>()
  const isConverged = ({ msg, loadBalancer = '', generation = 0 }: WorkerLine) =>
    msg === 'load balancer converged' && generation > (inEffect.get(loadBalancer) ?? -1)

  /**
   * Makes a change, and kills the worker at the first step line at which no worker died in this kind of change
   * before.
   */
  const through = async <T>(change: string, ask: () => Promise<T>, converged: (asked: T) => Promise<number>) => {
    for (const { id, generation } of await databases.loadBalancer('load_balancer').select('id', 'generation'))
      inEffect.set(id, Number(generation))
    let where: string | null = null
    const isNew = (line: WorkerLine) => {
      const place = `${change}: ${line.step} ${line.msg === 'step begins' ? 'begins' : 'is done'}`
      if (line.step === undefined || where !== null || diedAt.has(place)) return false
      where = place
      return true
    }
    const over = worker.at(
      line => isNew(line) || isConverged(line),
      () => {
        if (where !== null) worker.signal('SIGKILL')
      },
    )
    const asked = await ask()
    await over
    if (where === null) {
      isThrough.add(change)
    } else {
      diedAt.add(where)
      await worker.kill()
      worker = await startWorker(krater)
    }
    const took = await converged(asked)
    t.ok(took < BOUND_MS, `${where ?? `${change}, undisturbed`}: ${Math.round(took)} ms`)
    return asked
  }

  for (let round = 1; !(isThrough.has('create') && isThrough.has('delete')) && round <= 14; round++) {
    const first = isThrough.has('new subnet') ? [one, two] : [one]
    const balancer = await through(
      'create',
      // Members may leave at once, so that the same change removes their interface.
      () => balancers.create(`steps-${round}`, first, { deregistration_delay: 0 }),
      made => balancers.untilServing(made, first),
    )
    const changes: [name: string, sites: Site[], weight: number][] = [
      ['new subnet', [one, two], 1],
      ['weights', [one, two], 5],
      ['subnet left', [two], 1],
    ]
    for (const [change, sites, weight] of changes) {
      if (isThrough.has(change)) continue
      await through(
        change,
        () => balancers.setMembers(balancer, sites, weight),
        () => balancers.untilServing(balancer, sites),
      )
    }
    await through(
      'delete',
      () => balancers.remove(balancer),
      () => balancers.untilGone(balancer),
    )
    inEffect.set(balancer.id, Number.POSITIVE_INFINITY)
  }
  const steps = {
    create: ['allocate-amphora', 'create-machine', 'attach-port', 'await-agent', 'apply'],
    'new subnet': ['attach-port', 'apply'],
    weights: ['apply'],
    'subnet left': ['apply', 'await-leaving', 'detach-port'],
    delete: ['delete-machine', 'delete-ports', 'delete-amphora-row', 'release-vip-port'],
  }
  const places = Object.entries(steps).flatMap(([change, kinds]) =>
    kinds.flatMap(kind => [`${change}: ${kind} begins`, `${change}: ${kind} is done`]),
  )
  t.same([...diedAt].sort(), places.sort(), 'a worker died before and after each kind of step')
  await worker.kill()
  await nothingLeaked(t)
})

await t.test('two workers share the work, but never work on the same load balancer', async t => {
  pauseOwnWorker(t)
  const workers = [await startWorker(krater, WARM), await startWorker(krater, WARM)]
  const made = await Promise.all([1, 2, 3, 4].map(number => balancers.create(`shared-${number}`, [one])))
  for (let change = 1; change <= 20; change++) {
    const balancer = made[change % made.length]!
    await balancers.setMembers(balancer, change % 3 === 0 ? [one] : [one, two], change)
  }
  for (const [index, balancer] of made.entries()) {
    const last = 20 - ((20 - index) % made.length)
    await balancers.untilServing(balancer, last % 3 === 0 ? [one] : [one, two])
  }
  await Promise.all(made.map(balancers.remove))
  await Promise.all(made.map(balancer => balancers.untilGone(balancer)))
  const converges = convergesOf(workers)
  t.same([...new Set(converges.map(({ worker }) => worker))].sort(), [0, 1], 'both workers did some of the work')
  for (const { id, name } of made) {
    const own = converges.filter(({ loadBalancer }) => loadBalancer === id)
    const overlaps = own.filter((converge, index) => index > 0 && converge.begin < own[index - 1]!.end)
    t.same(
      overlaps,
      [],
      `${name}: ${own.length} converges, by ${new Set(own.map(({ worker }) => worker)).size} workers`,
    )
  }

  await t.test('when one worker dies, the other takes over in time', async t => {
    const [dying, heir] = workers
    const over = dying!.at(
      ({ msg }) => msg === 'step begins',
      () => dying!.signal('SIGKILL'),
    )
    const left = []
    for (let number = 1; number <= 8 && dying!.isAlive(); number++) {
      left.push(await balancers.create(`left-${number}`, [one, two]))
      await Promise.race([over, delay(500)])
    }
    const death = await over
    t.ok(death)
    for (const balancer of left) await balancers.untilServing(balancer, [one, two])
    const taken = convergesOf([heir!]).find(({ loadBalancer }) => loadBalancer === death?.loadBalancer)
    const waited = (taken?.begin ?? Number.NaN) - death!.at
    t.ok(waited < BOUND_MS, `${waited} ms`)
    for (const balancer of left) await balancers.remove(balancer)
    for (const balancer of left) await balancers.untilGone(balancer)
  })
  await Promise.all(workers.map(worker => worker.kill()))
})

await t.test('a worker paused past its lease does no harm', async t => {
  pauseOwnWorker(t)
  let [paused, other] = [await startWorker(krater), null as TestWorker | null]
  const balancer = await balancers.create('paused', [one])
  await balancers.untilServing(balancer, [one])
  const state = async (id: string) => ({
    loadBalancer: await databases
      .loadBalancer('load_balancer')
      .where({ id })
      .select('generation', 'applied_generation', 'fence', 'fault', 'lease_owner', 'vip_port_id'),
    amphorae: await databases
      .loadBalancer('amphora')
      .where({ load_balancer_id: id })
      .select('id', 'status', 'applied_generation', 'applied_sha256', 'updated_at'),
  })

  await t.test('paused during a change', async t => {
    const stopped = paused.at(
      ({ msg, step }) => msg === 'step begins' && step === 'apply',
      () => paused.signal('SIGSTOP'),
    )
    await balancers.setMembers(balancer, [two])
    const pause = await stopped
    t.ok(pause)
    for (const sites of [[one], [two], [one, two]]) await balancers.setMembers(balancer, sites)
    t.match(
      await balancers.show(balancer.id),
      { provisioning_status: 'PENDING_UPDATE' },
      'changes are accepted while the worker is paused',
    )
    other = await startWorker(krater)
    await balancers.untilServing(balancer, [one, two])
    const converges = convergesOf([other]).filter(({ loadBalancer }) => loadBalancer === balancer.id)
    const waited = (converges[0]?.begin ?? Number.NaN) - pause!.at
    t.ok(waited < BOUND_MS, `the other worker takes over after ${waited} ms`)
    t.equal(converges.length, 1, 'it applies the pending changes together')
    const before = await state(balancer.id)
    const fromHere = paused.lines.length
    const awake = paused.at(({ msg, loadBalancer }) => msg === 'converge ends' && loadBalancer === balancer.id)
    paused.signal('SIGCONT')
    t.ok(await awake)
    await delay(1_000)
    t.same(await state(balancer.id), before, 'the paused worker overwrites nothing')
    t.notOk(
      paused.lines.slice(fromHere).some(({ msg }) => msg === 'load balancer converged'),
      'the paused worker does not report that it converged',
    )
    await balancers.untilServing(balancer, [one, two])
    await paused.kill()
    paused = other
  })

  await t.test('paused during a create whose load balancer is then deleted', async t => {
    const stopped = paused.at(
      ({ msg, step }) => msg === 'step begins' && step === 'attach-port',
      () => paused.signal('SIGSTOP'),
    )
    const made = await balancers.create('given-up', [one, two])
    t.ok(await stopped)
    await balancers.remove(made)
    other = await startWorker(krater)
    await balancers.untilGone(made)
    const awake = paused.at(({ msg, loadBalancer }) => msg === 'converge ends' && loadBalancer === made.id)
    paused.signal('SIGCONT')
    t.ok(await awake)
    t.equal(await balancers.show(made.id), null)
    await nothingLeaked(t)
  })
  await balancers.remove(balancer)
  await balancers.untilGone(balancer)
  await Promise.all([paused.kill(), other?.kill()])
})

await t.test('an amphora recovers when its programs die', async t => {
  const balancer = await balancers.create('programs', [one, two])
  await balancers.untilServing(balancer, [one, two])
  const [amphora] = await databases
    .loadBalancer('amphora')
    .where({ load_balancer_id: balancer.id })
    .pluck<string[]>('id')
  const inside = () => processesInside(`krater-${krater.instance()}-${amphora}`)
  const kill = async (program: RegExp) => {
    const found = (await inside()).filter(({ command }) => program.test(command))
    for (const { pid } of found) killIfThere(pid)
    return found.length
  }

  await t.test('the agent dies: no request fails', async t => {
    const load = startRequests(balancer.url)
    await until('requests are answered', () => load.answered() > 20)
    t.equal(await kill(/agent\.mjs/), 1)
    const answeredThen = load.answered()
    await balancers.setMembers(balancer, [two])
    t.ok((await balancers.untilServing(balancer, [two])) < BOUND_MS, 'a pending change comes into effect')
    await until('requests are answered', () => load.answered() > answeredThen + 50)
    t.same((await load.stop()).faults, [])
  })

  await t.test('HAProxy dies: it serves again', async t => {
    t.ok((await kill(/^\S*haproxy /)) > 0)
    const took = await balancers.untilServing(balancer, [two])
    t.ok(took < BOUND_MS, `${Math.round(took)} ms`)
  })

  await t.test('sshd dies: the next change gets through', async t => {
    t.ok((await kill(/^sshd/)) > 0)
    await balancers.setMembers(balancer, [one])
    const took = await balancers.untilServing(balancer, [one])
    t.ok(took < BOUND_MS, `${Math.round(took)} ms`)
  })

  await t.test('process 1 dies: the amphora restarts with its own addresses', async t => {
    const rows = () =>
      databases
        .loadBalancer('amphora')
        .where({ load_balancer_id: balancer.id })
        .select('id', 'vrrp_ip', 'lb_network_ip')
    const before = await rows()
    process.kill((await inside()).find(({ isFirst }) => isFirst)!.pid, 'SIGKILL')
    await until('nothing runs in the amphora any more', async () => (await ask(balancer.url)) === null)
    const took = await balancers.untilServing(balancer, [one])
    t.ok(took < BOUND_MS, `${Math.round(took)} ms`)
    t.same(await rows(), before)
  })
  await balancers.remove(balancer)
  await balancers.untilGone(balancer)
  await nothingLeaked(t)
})

await t.test('API, health manager and PostgreSQL die during requests', async t => {
  type Victim = 'load-balancer-api' | 'health-manager' | 'postgres'
  /** When the victims die: milliseconds after a request is sent or answered. */
  type Moment = { name: string; after: 'sending' | 'answer'; milliseconds: number }
  const sent: Moment = { name: 'as the request is sent', after: 'sending', milliseconds: 2 }
  const underWay: Moment = { name: 'while the request is carried out', after: 'sending', milliseconds: 12 }
  const answered: Moment = { name: 'after the answer', after: 'answer', milliseconds: 0 }
  const converging: Moment = { name: 'during the converge', after: 'answer', milliseconds: 60 }

  const refusals: number[] = []
  const isAnswered = (request: Promise<unknown>) =>
    request.then(
      () => true,
      error => {
        if (error instanceof ApiRefusal) refusals.push(error.status)
        return false
      },
    )
  const areBack = async (victims: readonly Victim[], dead: readonly number[]) => {
    const running = krater.running()
    if (victims.some(victim => victim !== 'postgres' && !running.includes(victim))) return false
    // The children of a killed PostgreSQL still answer for a moment.
    const postmaster = runningPostmaster(krater.directory)
    return postmaster !== null && !dead.includes(postmaster.pid) && isAnswered(balancers.find('nobody'))
  }
  /** Sends a request, kills the victims, and waits until they are back. @returns whether the request succeeded */
  const amid = async (victims: readonly Victim[], moment: Moment, request: () => Promise<unknown>) => {
    const asked = isAnswered(request())
    if (moment.after === 'answer') await asked
    await delay(moment.milliseconds)
    const dead = victims.map(victim => krater.kill(victim))
    const succeeded = await asked
    await until('everything is back', () => areBack(victims, dead))
    return succeeded
  }

  const deaths: [victims: Victim[], moments: Moment[]][] = [
    [['postgres'], [sent, underWay, answered, converging]],
    // Few, because the supervisor's pauses grow with each death.
    [
      ['load-balancer-api', 'health-manager'],
      [underWay, answered],
    ],
  ]
  for (const [victims, moments] of deaths) {
    for (const moment of moments) {
      await t.test(`${victims.join(' and ')} ${moment.name}`, async t => {
        const name = `${victims[0]}-${moment.milliseconds}`
        const intime = async (what: string, converged: Promise<number>) => {
          const took = await converged
          t.ok(took < BOUND_MS, `${what}: ${Math.round(took)} ms`)
        }
        // Like any client, repeat a request without an answer if its object does not exist.
        await amid(victims, moment, () => balancers.create(name, [one]))
        const balancer = (await balancers.find(name)) ?? (await balancers.create(name, [one]))
        await intime('create', balancers.untilServing(balancer, [one]))

        const change = () => balancers.setMembers(balancer, [one, two])
        if (!(await amid(victims, moment, change))) await change()
        await intime('change', balancers.untilServing(balancer, [one, two]))

        const remove = async () => (await balancers.show(balancer.id)) !== null && balancers.remove(balancer)
        if (!(await amid(victims, moment, () => balancers.remove(balancer)))) await remove()
        await intime('delete', balancers.untilGone(balancer))
      })
    }
  }
  t.same(
    refusals.filter(status => status !== 503),
    [],
    'a failed request gets a 503 or no answer',
  )
  await nothingLeaked(t)
})

await t.test('everything dies at once and serves again after a restart', async t => {
  const [quiet, changing] = [await balancers.create('quiet', [one]), await balancers.create('changing', [one])]
  for (const balancer of [quiet, changing]) await balancers.untilServing(balancer, [one])
  await balancers.setMembers(changing, [two])
  await balancers.remove(await balancers.create('going', [one, two]))
  await krater.killEverything()
  await krater.up()
  const started = performance.now()
  await balancers.untilServing(quiet, [one])
  await balancers.untilServing(changing, [two])
  const took = performance.now() - started
  t.ok(took < BOUND_MS, `${Math.round(took)} ms after the start`)
  for (const balancer of [quiet, changing]) await balancers.remove(balancer)
  for (const balancer of [quiet, changing]) await balancers.untilGone(balancer)
  await nothingLeaked(t)
})
