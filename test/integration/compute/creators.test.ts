import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as wait } from 'node:timers/promises'
import t from 'tap'
import { NamespaceDriver } from '../../../controller/compute/namespace/driver.js'
import { SshAgentConnections } from '../../../controller/provider/amphora/agent/connection.js'
import { ip } from '../../support/worlds/ip.js'
import type { CreatorOrders } from '../../support/worlds/machine-creator.js'
import { SHARES } from '../../support/worlds/machine-shares.js'
import { createLab, eventually, processesIn, quiet } from '../../support/worlds/machines.js'
import { bundle } from '../../support/worlds/programs.js'

const programs = t.testdir({})
await bundle(
  {
    agent: join(import.meta.dirname, '../../../amphora-agent/main.ts'),
    creator: join(import.meta.dirname, '../../support/worlds/machine-creator.ts'),
  },
  programs,
)
const agentBundle = join(programs, 'agent.mjs')
const lab = await createLab({ agentBundle })
const { driver, fabric, directory, controllerKey } = lab
const agents = new SshAgentConnections({ controllerKey, log: quiet })
t.teardown(async () => {
  await agents.stop()
  await lab.destroy()
})

const hello = { verb: 'hello' } as const

t.test('a create that dies or meets another one', async t => {
  const { spec, target } = lab.amphora()
  const { amphoraId } = target
  const own = join(directory, amphoraId)
  const namespace = lab.namespaceOf(amphoraId)
  t.afterEach(async () => driver.delete(amphoraId))

  /** Creates the machine in this process, and checks that it is the only one, complete and reachable. */
  const expectMade = async (t: Tap) => {
    t.match(await driver.create(spec), { state: 'running' })
    t.match(await agents.request(target, hello), { appliedGeneration: 0 })
    const holders = execFileSync('ps', ['axo', 'args'], { encoding: 'utf8' })
      .split('\n')
      .filter(line => line.startsWith('unshare') && line.includes(own))
    t.equal(holders.length, 1, 'one process holds it')
  }

  // The last creator's output: a creator that was overtaken ends with an error.
  let lastWords = ''
  const startCreator = (): ChildProcess => {
    const creator = spawn(process.execPath, [join(programs, 'creator.mjs')], { stdio: 'pipe' })
    creator.stderr!.setEncoding('utf8').on('data', words => {
      lastWords = words
    })
    const { identity } = spec
    const orders: CreatorOrders = {
      instance: lab.instance,
      directory,
      agentBundle,
      spec,
      heartbeatKey: identity.heartbeatKey.toString('hex'),
    }
    creator.stdin!.end(JSON.stringify(orders))
    return creator
  }
  const says = async (creator: ChildProcess, word: string) => {
    for await (const line of createInterface({ input: creator.stdout! })) if (line === word) return
    throw new Error(`The creator ended without printing "${word}": ${lastWords}`)
  }

  for (const milliseconds of [5, 30, 60, 90, 120, 160, 200, 250, 300]) {
    t.test(`after ${milliseconds} ms leaves a machine that another create can finish`, async t => {
      const creator = startCreator()
      const ended = new Promise(resolve => creator.once('exit', resolve))
      await says(creator, 'begins')
      await wait(milliseconds)
      creator.kill('SIGKILL')
      await ended
      await expectMade(t)
    })
  }

  t.test('after its work leaves the machine running', async t => {
    const creator = startCreator()
    await says(creator, 'made')
    creator.kill('SIGKILL')
    t.match(await driver.find(amphoraId), { state: 'running' })
    t.match(await agents.request(target, hello), { appliedGeneration: 0 })
    const before = lab.holderOf(amphoraId)
    await expectMade(t)
    t.equal(lab.holderOf(amphoraId), before)
  })

  t.test('when stopped halfway is overtaken by another create', async t => {
    const creator = startCreator()
    const ended = new Promise(resolve => creator.once('exit', resolve))
    await says(creator, 'begins')
    await eventually('the namespace exists', () => existsSync(`/run/netns/${namespace}`))
    creator.kill('SIGSTOP')
    await expectMade(t)
    const before = lab.holderOf(amphoraId)
    creator.kill('SIGCONT')
    await ended
    await driver.create(spec)
    t.match(await agents.request(target, hello), { appliedGeneration: 0 })
    t.type(before, 'number')
  })

  t.test('whose machine left only files counts as a stopped machine', async t => {
    mkdirSync(join(own, 'ports'), { recursive: true })
    t.match(await driver.find(amphoraId), { state: 'stopped' })
    t.match(await driver.list(), [{ amphoraId, state: 'stopped' }])
    await expectMade(t)
  })

  t.test('whose machine left only a namespace is listed and can be deleted', async t => {
    ip('netns', 'add', namespace)
    t.match(await driver.list(), [{ amphoraId, state: 'stopped' }])
    await driver.delete(amphoraId)
    t.same(await driver.list(), [])
    t.notMatch(ip('netns', 'list'), namespace)
  })

  t.test('that left a record with a reused PID never touches the other process', async t => {
    await driver.create(spec)
    const bystander = spawn('sleep', ['60'])
    const [, ticks, boot] = readFileSync(join(own, 'process'), 'utf8').trim().split(' ')
    process.kill(lab.holderOf(amphoraId), 'SIGKILL')
    await eventually('none of its processes runs', () => processesIn(namespace).length === 0)
    writeFileSync(join(own, 'process'), `${bystander.pid} ${ticks} ${boot}\n`)
    t.match(await driver.find(amphoraId), { state: 'stopped' })
    await expectMade(t)
    await driver.delete(amphoraId)
    t.equal(bystander.exitCode, null)
    t.equal(bystander.signalCode, null)
    bystander.kill()
  })

  t.test('concurrent with another leaves one machine', async t => {
    const second = new NamespaceDriver({
      instance: lab.instance,
      directory,
      fabric,
      networkMtu: async () => 1500,
      portFilters: async () => null,
      agentBundle,
      ...SHARES,
      log: quiet,
    })
    await Promise.allSettled([driver.create(spec), second.create(spec)])
    await expectMade(t)
  })
})

type Tap = Pick<typeof t, 'match' | 'equal'>
