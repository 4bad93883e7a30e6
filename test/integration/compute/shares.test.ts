import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { availableParallelism, tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import t from 'tap'
import { enforce } from '../../../controller/compute/host/cgroup.js'
import { asOperator, createLab, createPort, processesIn } from '../../support/worlds/machines.js'
import { bundle } from '../../support/worlds/programs.js'

/** Processors are shared by project, not by amphora, so one project cannot starve another. */
const programs = t.testdir({})
const root = join(import.meta.dirname, '../../..')
const entries = { agent: 'amphora-agent/main.ts', groups: 'controller/compute/host/cgroup.ts' }
await bundle(Object.fromEntries(Object.entries(entries).map(([name, path]) => [name, join(root, path)])), programs)
const lab = await createLab({ agentBundle: join(programs, 'agent.mjs') })
const { driver } = lab
t.teardown(lab.destroy)

/** The control group hierarchies of this host, and where this installation's groups begin in each. */
const mounts = readFileSync('/proc/self/mounts', 'utf8')
  .split('\n')
  .map(line => line.split(' '))
  .filter(([, path, type]) => type?.startsWith('cgroup') && existsSync(path!))
const tops = [...new Set(mounts.map(([, path]) => join(path!, `krater-${lab.instance}`)))]

const pathTo = (project: string | null, amphoraId: string) =>
  join(project === null ? 'waiting' : `project-${project}`, amphoraId)
/** The existing groups with this name. */
const groups = (name: string) => tops.map(top => join(top, name)).filter(group => existsSync(group))
const hasProcessors = (group: string) => ['cpu.shares', 'cpu.weight'].some(name => existsSync(join(group, name)))
const membersOf = (group: string) => readFileSync(join(group, 'cgroup.procs'), 'utf8').trim().split('\n').map(Number)
const processesOf = (amphoraId: string) => processesIn(lab.namespaceOf(amphoraId))
/** The live processes that are not in the group. */
const outside = (group: string, processes: readonly number[]) => {
  const members = membersOf(group)
  return processes.filter(pid => existsSync(`/proc/${pid}`) && !members.includes(pid))
}
const settingsOf = (group: string) =>
  ['memory.max', 'memory.limit_in_bytes', 'cpu.max', 'cpu.cfs_quota_us', 'pids.max']
    .filter(name => existsSync(join(group, name)))
    .map(name => [name, readFileSync(join(group, name), 'utf8')] as const)

async function start(projectId: string | null) {
  const made = lab.amphora(randomUUID(), projectId)
  await driver.create(made.spec)
  t.teardown(() => driver.delete(made.spec.amphoraId))
  return made
}

/** CPU seconds that a process has used. */
const secondsOf = ({ pid }: ChildProcess) => {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
  const [user, system] = stat.slice(stat.lastIndexOf(')')).split(' ').slice(12, 14).map(Number)
  return (user! + system!) / 100
}

t.test('one project’s amphora gets as much CPU as all amphorae of another project', async t => {
  const [one, other, neighbour] = [await start('greedy'), await start('greedy'), await start('neighbour')]
  /** Starts a process in an amphora's group, pinned to one CPU, that ends after some CPU seconds. */
  const work = async (amphoraId: string, project: string, seconds: number) => {
    const joining = groups(pathTo(project, amphoraId)).map(group => `echo 0 >${group}/cgroup.procs; `)
    const program = `$| = 1; print "begins\\n"; do { 1 for 1 .. 100_000 } until (times)[0] + (times)[1] > ${seconds}`
    const child = spawn('bash', ['-c', `${joining.join('')}exec taskset -c 0 perl -e '${program}'`])
    await once(child.stdout, 'data')
    return child
  }
  if (!tops.some(hasProcessors)) return t.comment('no cpu controller here')
  const greedy = [
    await work(one.spec.amphoraId, 'greedy', 600),
    await work(one.spec.amphoraId, 'greedy', 600),
    await work(other.spec.amphoraId, 'greedy', 600),
  ]
  const used = () => greedy.reduce((total, child) => total + secondsOf(child), 0)
  const modest = await work(neighbour.spec.amphoraId, 'neighbour', 2)
  const before = used()
  await once(modest, 'exit')
  const took = used() - before
  for (const child of greedy) {
    child.kill('SIGKILL')
    await once(child, 'exit')
  }
  t.ok(took < 3, `three busy processes of two amphorae got ${took} s while one of another project got 2 s`)
})

t.test('a warm amphora moves into its project’s control group and keeps its limits', async t => {
  const { spec, target } = await start(null)
  const { amphoraId } = spec
  const waiting = groups(pathTo(null, amphoraId))
  const limits = waiting.flatMap(settingsOf)
  const processes = processesOf(amphoraId)
  if (!waiting.some(hasProcessors)) return t.comment('no cpu controller here')
  await driver.plug(amphoraId, createPort(randomUUID(), '198.51.100.10'), 'adopts')
  t.notOk(groups(pathTo(null, amphoraId)).some(hasProcessors))
  const [adopted, ...more] = groups(pathTo('adopts', amphoraId))
  t.same(more, [], 'groups without a cpu controller stay where possible')
  t.same(outside(adopted!, processes), [])
  const everywhere = [...groups(pathTo(null, amphoraId)), adopted!]
  t.same(new Map(everywhere.flatMap(settingsOf)), new Map(limits))
  t.equal(await asOperator(target, lab.operatorKey, 'echo here'), 'here\n', 'the amphora keeps running')
  await driver.plug(amphoraId, createPort(randomUUID(), '198.51.100.11'), 'adopts')
  t.same(groups(pathTo('adopts', amphoraId)), [adopted], 'another interface changes nothing')
  await driver.delete(amphoraId)
  t.same([groups('project-adopts'), groups('waiting')], [[], []], 'no empty group remains')
})

t.test('an amphora of an earlier version changes its group with its next interface', async t => {
  const before = { moved: await start('earlier'), removed: await start('earlier') }
  for (const { amphoraId } of [before.moved.spec, before.removed.spec]) {
    for (const group of groups(pathTo('earlier', amphoraId))) {
      const former = join(dirname(dirname(group)), amphoraId)
      mkdirSync(former)
      for (const [name, value] of settingsOf(group)) writeFileSync(join(former, name), value)
      for (const pid of membersOf(group)) writeFileSync(join(former, 'cgroup.procs'), `${pid}`)
    }
    t.equal(groups(amphoraId).length, groups('').length)
  }
  const { amphoraId } = before.moved.spec
  const processes = processesOf(amphoraId)
  await driver.plug(amphoraId, createPort(randomUUID(), '198.51.100.12'), 'earlier')
  t.notOk(groups(amphoraId).some(hasProcessors))
  for (const group of groups(pathTo('earlier', amphoraId)).filter(hasProcessors)) {
    t.same(outside(group, processes), [])
  }
  await driver.delete(before.removed.spec.amphoraId)
  t.same(groups(before.removed.spec.amphoraId), [])
})

t.test('deleted amphorae leave no control group', async t => {
  for (const { amphoraId } of await driver.list()) await driver.delete(amphoraId)
  t.same(
    tops.filter(top => existsSync(top)),
    [],
  )
})

t.test('cgroup v2: each level above the machine delegates the controllers', async t => {
  // A plain directory stands in for the kernel's file system.
  const path = mkdtempSync(join(tmpdir(), 'krater-groups-'))
  t.teardown(() => rmSync(path, { recursive: true }))
  const place = { instance: 'krater-test', project: '../a/b', machine: 'm' }
  const limits = { memoryBytes: 2 ** 30, processors: 1.5, processes: 100 }
  const controllers = ['memory', 'cpu', 'pids']
  const { groups, lacking } = enforce(place, limits, [{ path, version: 2, controllers }])
  const group = join(path, 'krater-test', 'project-..%2Fa%2Fb', 'm')
  t.same([groups, lacking], [[group], []])
  t.same(readdirSync(group).toSorted(), ['cpu.max', 'memory.max', 'pids.max'])
  for (const above of [path, dirname(dirname(group)), dirname(group)]) {
    t.ok(existsSync(join(above, 'cgroup.subtree_control')), above)
  }
  const isGrouped = !/^0::\/$/m.test(readFileSync('/proc/self/cgroup', 'utf8'))
  const weight = Number(readFileSync(join(dirname(dirname(group)), 'cpu.weight'), 'utf8'))
  t.equal(
    weight,
    isGrouped ? 400 : 100 * availableParallelism(),
    'all amphorae together weigh as much as four sibling groups',
  )
  t.notOk(existsSync(join(dirname(group), 'cpu.weight')), 'each project keeps the default weight')
})

t.test('where another mount hides the control groups, a machine starts without limits', t => {
  const program = `
    import { enforce, release } from '${join(programs, 'groups.mjs')}'
    const place = { instance: 'krater-hidden', project: null, machine: 'm' }
    console.log(JSON.stringify(enforce(place, { memoryBytes: 2 ** 30, processors: 1, processes: 100 })))
    await release(place)`
  const node = [process.execPath, '--input-type=module', '--eval', program]
  // In another network namespace sysfs is another one, as with `ip netns exec`.
  const hide = 'mount -t sysfs sysfs /sys && exec "$@"'
  const answer = execFileSync('unshare', ['--mount', '--net', 'sh', '-c', hide, 'sh', ...node], { timeout: 20_000 })
  const { groups, inForce, lacking } = JSON.parse(answer.toString())
  t.same([groups, inForce], [[], {}])
  t.match(lacking, [{ what: 'memory', why: /another mount hides it/ }, { what: 'processor' }, { what: 'processes' }])
  t.end()
})
