import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import t from 'tap'
import * as z from 'zod'
import { startPatroni } from '../support/services/patroni.js'
import type { Acknowledged } from '../support/worlds/change-storm.js'
import { addControllerHost, type ControllerHost } from '../support/worlds/controller-hosts.js'
import { until } from '../support/worlds/krater.js'
import { createMachineRoom } from '../support/worlds/machine-room.js'
import { bundle } from '../support/worlds/programs.js'

/** Each takes half a minute. */
const KILLS = Number(process.env.KRATER_TEST_KILLS ?? 3)
/** From the new primary until a new change is in effect. */
const CONVERGED_SECONDS = 10

const statusSchema = z.object({
  hosts: z.array(
    z.object({
      name: z.string(),
      state: z.string(),
      load_balancers: z.number(),
      amphorae: z.number(),
      processes: z.array(z.object({ name: z.string(), version: z.string() })),
    }),
  ),
})
const statusOn = async (host: ControllerHost) =>
  statusSchema.parse(JSON.parse(await host.must('status', '--json'))).hosts
const stateOf = async (observer: ControllerHost, name: string) =>
  (await statusOn(observer)).find(host => host.name === name)?.state

const rowSchema = z.object({
  description: z.string(),
  generation: z.number(),
  applied_generation: z.number(),
  fault: z.unknown(),
})

/** The numbers of the acknowledged changes of a kind, in their order. */
const numbersOf = (kind: Acknowledged, acknowledged: readonly string[]): number[] =>
  acknowledged.filter(line => line.startsWith(kind)).map(line => Number(/\d+$/.exec(line)?.[0]))

t.test('two controller hosts over a replicated PostgreSQL', async t => {
  const room = await createMachineRoom(t)
  const database = await startPatroni(t, room)
  const [one, two] = [await addControllerHost(t, room, 'one'), await addControllerHost(t, room, 'two')]
  const work = mkdtempSync(join(tmpdir(), 'kr-storm-'))
  t.teardown(() => rmSync(work, { recursive: true, force: true }))
  await bundle({ storm: join(import.meta.dirname, '../support/worlds/change-storm.ts') }, work)
  const file = join(work, 'two.tar')

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
  })

  await t.test('the primary is killed again and again under a storm of changes', async t => {
    const demo = await one.must('demo')
    const url = /requests to (http:\S+)/.exec(demo)?.[1] ?? ''
    const id = /explain ([0-9a-f-]{36})/.exec(demo)?.[1] ?? ''
    const [owner] = (await statusOn(one)).filter(host => host.load_balancers > 0)
    const serving = owner?.name === 'two' ? two : one
    const amphoraeBefore = await one.must('amphora', 'list')
    const idsIn = (list: string) =>
      list
        .split('\n')
        .filter(line => line.includes(id))
        .map(line => line.split(' ')[0])
    /** By psql, which follows the primary in its own way. Asks again while there is none. */
    const ask = async <T>(schema: z.ZodType<T>, text: string): Promise<T> => {
      let answer = ''
      await until('the database answers', async () => {
        const { status, stdout } = await two.machine.run(['psql', '-XAtc', text, database.url], process.env)
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
    const statesSeen = new Set<string>()
    for (let kill = 1; kill <= KILLS; kill++) {
      const primary = await database.primary()
      await primary.powerOff()
      const next = await database.primary()
      const since = performance.now()
      const before = acknowledged.length
      await until('a change is acknowledged again', () => acknowledged.length > before, 60)
      const { generation } = await row()
      await until('it is in effect', async () => (await row()).applied_generation >= generation, 60)
      const seconds = (performance.now() - since) / 1000
      t.ok(
        seconds < CONVERGED_SECONDS,
        `kill ${kill}: from ${primary.name} to ${next.name}, changes go on after ${seconds.toFixed(1)} s`,
      )
      t.equal(await serving.ask(url), 200, 'traffic passes')
      for (const { name, state } of await statusOn(one)) statesSeen.add(`${name} ${state}`)
      await database.boot(primary)
      await database.isWhole()
    }
    // It ends with its output: nsenter waits for it as for a child.
    storm.stdout.destroy()
    t.notOk(
      [...statesSeen].some(state => state.endsWith('gone')),
      `no host is held to be gone: ${[...statesSeen].join(', ')}`,
    )
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
    t.same(idsIn(await one.must('amphora', 'list')), idsIn(amphoraeBefore), 'the load balancer has its amphora still')
  })

  await t.test('a host that loses its power is gone; its load balancers are rebuilt on the other', async t => {
    const owner = (await statusOn(one)).find(host => host.load_balancers > 0)?.name
    const [lost, left] = owner === 'two' ? [two, one] : [one, two]
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
