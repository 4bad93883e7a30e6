import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import t from 'tap'
import * as z from 'zod'
import { startPatroni } from '../support/services/patroni.js'
import type { Acknowledged } from '../support/worlds/change-storm.js'
import { addControllerHost, type ControllerHost } from '../support/worlds/controller-hosts.js'
import { until } from '../support/worlds/krater.js'
import { createMachineRoom, type RoomMachine } from '../support/worlds/machine-room.js'
import { bundle } from '../support/worlds/programs.js'

/** Each takes half a minute. They take turns: power, cable, Patroni. */
const KILLS = Number(process.env.KRATER_TEST_KILLS ?? 3)
/** From the new primary until a new change is in effect. */
const CONVERGED_SECONDS = 10
/** Longer than a host that is gone must have been silent. */
const SILENT_SECONDS = 36

const statusSchema = z.object({
  hosts: z.array(
    z.object({
      name: z.string(),
      state: z.string(),
      load_balancers: z.number(),
      amphorae: z.number(),
      silent_seconds: z.number().nullable(),
      processes: z.array(z.object({ name: z.string(), pid: z.number(), version: z.string() })),
    }),
  ),
})
const statusOn = async (host: ControllerHost) =>
  statusSchema.parse(JSON.parse(await host.must('status', '--json'))).hosts
const seenFrom = async (observer: ControllerHost, name: string) =>
  (await statusOn(observer)).find(host => host.name === name)
const stateOf = async (observer: ControllerHost, name: string) => (await seenFrom(observer, name))?.state

const rowSchema = z.object({
  description: z.string(),
  generation: z.number(),
  applied_generation: z.number(),
  fault: z.unknown(),
})

type Failure = Record<'fail' | 'mend', (node: RoomMachine) => Promise<void>> & { title: string }

/** The numbers of the acknowledged changes of a kind, in their order. */
const numbersOf = (kind: Acknowledged, acknowledged: readonly string[]): number[] =>
  acknowledged.filter(line => line.startsWith(kind)).map(line => Number(/\d+$/.exec(line)?.[0]))

t.test('two controller hosts over a replicated PostgreSQL', async t => {
  const room = await createMachineRoom(t)
  const database = await startPatroni(room)
  const [one, two] = [await addControllerHost(t, room, 'one'), await addControllerHost(t, room, 'two')]
  const work = mkdtempSync(join(tmpdir(), 'kr-storm-'))
  t.teardown(() => rmSync(work, { recursive: true, force: true }))
  await bundle({ storm: join(import.meta.dirname, '../support/worlds/change-storm.ts') }, work)
  const file = join(work, 'two.tar')
  /** How a primary fails, and how it is mended. */
  const failures: [Failure, ...Failure[]] = [
    { title: 'loses its power', fail: node => node.powerOff(), mend: database.boot },
    {
      title: 'loses its cable',
      fail: node => node.setCable(false),
      // Patroni does not always go on by itself.
      mend: async node => {
        await node.powerOff()
        await node.setCable(true)
        await database.boot(node)
      },
    },
    {
      title: 'goes on without Patroni',
      fail: database.killPatroni,
      mend: async node => {
        t.ok(await database.takesWrites(node), `two servers believe to be the primary: ${node.name} is one of them`)
        await node.powerOff()
        await database.bootAnew(node)
      },
    },
  ]

  await t.test('the second joins with the bundle of the first, and each shows both', async t => {
    const first = {
      KRATER_HOST_NAME: 'one',
      KRATER_HOST_ADDRESS: one.machine.address,
      KRATER_DATABASE_URL: database.url,
    }
    Object.assign(one.environment, first, { KRATER_NETWORK_OUTSIDE: 'false' })
    await one.must('up', '--detach')
    for (const variable of Object.keys(first)) delete one.environment[variable]
    await one.must('controller', 'add', 'two', two.machine.address, '--output', file)
    await two.must('up', '--join', file, '--detach')
    for (const host of [one, two]) {
      const hosts = await statusOn(host)
      t.same(
        hosts.map(({ name, state }) => `${name} ${state}`),
        ['one alive', 'two alive'],
      )
      t.same(
        hosts[0]?.processes.map(({ name }) => name),
        hosts[1]?.processes.map(({ name }) => name),
      )
    }
    t.match(await two.krater('up', '--join', file), { status: 1, stderr: /already running|is another controller host/ })
    t.match(await one.krater('controller', 'remove', 'two'), { status: 1, stderr: /are running.*krater down/ })
    t.match(await one.krater('controller', 'add', 'two', '192.0.2.9'), {
      status: 1,
      stderr: /There is a controller host two already/,
    })
    t.match(await one.krater('controller', 'add', 'three', '192.0.2.9', '--output', '/dev/stdout'), {
      status: 1,
      stderr: /\/dev\/stdout is no plain file/,
    })
    t.notMatch(await one.must('controller', 'list'), /three/)
  })

  const demo = await one.must('demo')
  const url = /requests to (http:\S+)/.exec(demo)?.[1] ?? ''
  const id = /explain ([0-9a-f-]{36})/.exec(demo)?.[1] ?? ''
  const amphorae = async () =>
    (await two.must('amphora', 'list'))
      .split('\n')
      .filter(line => line.includes(id))
      .map(line => line.split(' ')[0])
  const first = await amphorae()
  const [owner] = (await statusOn(one)).filter(host => host.load_balancers > 0)
  const [serving, other] = owner?.name === 'two' ? [two, one] : [one, two]

  await t.test('the primary is killed again and again under a storm of changes', async t => {
    let primary = await database.primary()
    /** Without Krater. */
    const ask = async <T>(schema: z.ZodType<T>, text: string): Promise<T> => {
      let answer = ''
      await until('the database answers', async () => {
        const { status, stdout } = await two.machine.run(['psql', '-XAtc', text, database.urlOf(primary)], process.env)
        answer = stdout
        return status === 0
      })
      return schema.parse(JSON.parse(answer))
    }
    const row = () =>
      ask(
        rowSchema,
        `SELECT row_to_json(lb) FROM (SELECT description, generation, applied_generation, fault FROM load_balancer.load_balancer WHERE id = '${id}') lb`,
      )
    const storm = two.machine.start([process.execPath, join(work, 'storm.mjs'), two.directory, id], {
      environment: two.environment,
    })
    const acknowledged: string[] = []
    if (storm.stdout === null) throw new Error('The storm has no output.')
    createInterface(storm.stdout).on('line', line => acknowledged.push(line))
    await until('the storm blows', () => acknowledged.length > 5)
    for (let kill = 1; kill <= KILLS; kill++) {
      const former = await database.primary()
      const { title, fail, mend } = failures[(kill - 1) % failures.length] ?? failures[0]
      const failed = performance.now()
      await fail(former)
      primary = await database.primary()
      const since = performance.now()
      const before = acknowledged.length
      await until('a change is acknowledged again', () => acknowledged.length > before, 60)
      const { generation } = await row()
      await until('it is in effect', async () => (await row()).applied_generation >= generation, 60)
      const seconds = (performance.now() - since) / 1000
      const [without, more] = [(since - failed) / 1000, seconds].map(time => time.toFixed(1))
      t.ok(
        seconds < CONVERGED_SECONDS,
        `${kill}: ${former.name} ${title}; ${primary.name} is the primary after ${without} s, and changes go on ${more} s later`,
      )
      t.equal(await serving.ask(url), 200, 'traffic passes')
      await mend(former)
      await database.isWhole()
    }
    // It ends with its output: nsenter waits for it as for a child.
    storm.stdout.destroy()
    await until('everything is applied', async () => {
      const { applied_generation, generation, fault } = await row()
      return applied_generation === generation && fault === null
    })
    const { description } = await row()
    const last = numbersOf('description', acknowledged).at(-1) ?? 0
    t.ok(
      Number(description.split(' ')[1]) >= last,
      `of the acknowledged changes, the last is ${last}; there is ${description}`,
    )
    const pools = await ask(
      z.array(z.string()),
      `SELECT coalesce(json_agg(name), '[]') FROM load_balancer.pool WHERE load_balancer_id = '${id}'`,
    )
    const made = numbersOf('pool', acknowledged)
    const lost = made.filter(number => !pools.includes(`storm-${number}`))
    t.same(lost, [], `all ${made.length} acknowledged pools are there`)
    const restarts = await ask(z.number(), 'SELECT count(*) FROM load_balancer.amphora_restart')
    t.equal(restarts, 0, 'no amphora was restarted or replaced')
    t.same(await amphorae(), first, 'the load balancer has its amphora still')
  })

  await t.test('a host is slow, and keeps its load balancers, while it is stopped or without the database', async t => {
    const { name } = serving.machine
    const pids = (await seenFrom(other, name))?.processes.map(({ pid }) => String(pid)) ?? []
    const on = async (...argv: [string, ...string[]]) => t.match(await serving.machine.run(argv), { status: 0 })
    const staysSlow = async (why: string) => {
      await until(`it is silent: ${why}`, async () => {
        return ((await seenFrom(other, name))?.silent_seconds ?? 0) > SILENT_SECONDS
      })
      t.match(await seenFrom(other, name), { state: 'slow', load_balancers: 1 }, why)
      t.equal(await serving.ask(url), 200, `traffic passes: ${why}`)
    }
    const comesBack = () => until('it comes back', async () => (await stateOf(other, name)) === 'alive')
    await on('kill', '-STOP', ...pids)
    await staysSlow('its processes are stopped')
    await on('kill', '-CONT', ...pids)
    await comesBack()
    for (const { address } of database.nodes) await on('ip', 'route', 'add', 'blackhole', address)
    await staysSlow('no way leads to the database')
    for (const { address } of database.nodes) await on('ip', 'route', 'delete', 'blackhole', address)
    await comesBack()
    t.same(await amphorae(), first, 'the load balancer has its amphora still')
  })

  await t.test('all this time, nobody held a host to be gone', t => {
    for (const { directory, machine } of [one, two]) {
      const log = readFileSync(join(directory, 'log/worker.log'), 'utf8')
      t.notMatch(log, /a controller host is gone|was held to be gone/, machine.name)
    }
    t.end()
  })

  await t.test('a host that was cut off removes the machines that it has lost before it takes part again', async t => {
    const machines = async () => (await serving.machine.run(['ip', 'netns', 'list'])).stdout.includes(String(first[0]))
    await serving.machine.setCable(false)
    await until('it is held to be gone', async () => (await stateOf(other, serving.machine.name)) === 'gone')
    await until('the other has its load balancer', async () => {
      return (await seenFrom(other, other.machine.name))?.load_balancers === 1
    })
    t.ok(await machines(), 'while it is cut off, it still has its machine')
    await serving.machine.setCable(true)
    await until('it takes part again', async () => (await stateOf(other, serving.machine.name)) === 'alive')
    t.notOk(await machines(), 'its machine is gone')
    t.notSame(await amphorae(), first)
  })

  await t.test('a host that loses its power is gone; its load balancers are rebuilt on the other', async t => {
    const [lost, left] = [other, serving]
    await lost.machine.powerOff()
    await until('it is held to be gone', async () => (await stateOf(left, lost.machine.name)) === 'gone')
    await until('the other has its load balancer', async () => {
      const host = (await statusOn(left)).find(({ name }) => name === left.machine.name)
      return host?.load_balancers === 1
    })
    t.match(await left.krater('controller', 'remove', lost.machine.name), { status: 0 })
    await until('nothing of it is left', async () => (await stateOf(left, lost.machine.name)) === undefined)
    await lost.machine.powerOn()
    t.match(await lost.krater('up'), { status: 1, stderr: /no longer knows this host/ })
  })
})
