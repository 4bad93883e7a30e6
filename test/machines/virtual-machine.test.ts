import { execFileSync, spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import * as z from 'zod'
import { DATAGRAM_TABLE } from '../../amphora-agent/protocol/datagrams.js'
import { QmpRefused, withQmp } from '../../controller/compute/qemu/qmp/client.js'
import { tapOf } from '../../controller/network/local/fabric.js'
import { SshAgentConnections } from '../../controller/provider/amphora/agent/connection.js'
import { ip } from '../support/worlds/ip.js'
import { asOperator, createPort, eventually, firstProcessOf, quiet } from '../support/worlds/machines.js'
import { bundle } from '../support/worlds/programs.js'
import { builtImage, openVirtualDriver } from '../support/worlds/virtual-driver.js'
import type { ChangerOrders } from '../support/worlds/virtual-machine-changer.js'
import { processesOf, type Sight, tapsIn } from '../support/worlds/virtual-machine-sights.js'
import { createVirtualLab } from '../support/worlds/virtual-machines.js'

const programs = t.testdir({})
await bundle({ changer: join(import.meta.dirname, '../support/worlds/virtual-machine-changer.ts') }, programs)
const lab = await createVirtualLab()
const { driver, fabric, directory, instance, controllerKey, operatorKey } = lab
const agents = new SshAgentConnections({ controllerKey, log: quiet })
t.teardown(async () => {
  await agents.stop()
  await lab.destroy()
})

/** Milliseconds: an emulated machine starts while other tests run. */
const PATIENCE = 300_000
const { spec, target } = lab.amphora()
const { amphoraId } = target
const namespace = `krater-${instance}-vm-${amphoraId}`
const own = join(directory, amphoraId)
const inside = (command: string) => asOperator(target, operatorKey, command)

/** Everything of the machine that is on this host. */
const traces = () => [
  ...(existsSync(own) ? readdirSync(own).map(name => `file ${name}`) : []),
  ...(existsSync(`/run/netns/${namespace}`) ? [`namespace ${namespace}`] : []),
  ...tapsIn(fabric.namespace).map(name => `tap ${name}`),
  ...processesOf(amphoraId).map(pid => `process ${pid}`),
]

/** A change in a process of its own. */
type Change = ChangerOrders extends infer Orders ? (Orders extends unknown ? Omit<Orders, 'killAt'> : never) : never

/** Kills a change as soon as something is there, or gone: before the change is done. */
async function killDuring(t: Test, change: Change, killAt: Sight): Promise<void> {
  t.same(await endOfKilled(change, killAt), [null, 'SIGKILL'], 'it was killed amid the change')
}

/** The same, for a change that may be done before the kill. @returns its exit code and signal */
async function endOfKilled(change: Change, killAt: Sight): Promise<unknown[]> {
  const signal = AbortSignal.timeout(PATIENCE)
  const changer = spawn(process.execPath, [join(programs, 'changer.mjs')], {
    ...{ stdio: ['pipe', 'ignore', 'ignore'], signal },
  })
  const ended = once(changer, 'exit', { signal })
  changer.stdin.end(JSON.stringify({ ...change, killAt }))
  return ended
}

const hello = () =>
  eventually('the agent answers', () => agents.request(target, { verb: 'hello' }).catch(() => null), PATIENCE)

t.test('a creation that is killed', async t => {
  const orders: Change = {
    ...{ instance, directory, change: 'create', spec },
    heartbeatKey: spec.identity.heartbeatKey.toString('hex'),
  }
  const inOwn = (name: string) => ({ file: join(own, name) })
  const steps: [string, Sight][] = [
    ['when it has recorded what the machine has', inOwn('hardware')],
    ['when its namespace is there', { file: `/run/netns/${namespace}` }],
    ['when its disk is there', inOwn('disk.qcow2')],
    ['when a process holds it', inOwn('process')],
    ['when QEMU listens', inOwn('monitor')],
    ['when its tap device is there', { tapIn: [namespace, fabric.namespace] }],
    ['when its tap device is in the fabric', { tapIn: [fabric.namespace] }],
    ['when it runs', inOwn('ready')],
  ]
  for (const [when, killAt] of steps) {
    await t.test(`${when} leaves nothing that deletion does not find`, async t => {
      await killDuring(t, orders, killAt)
      t.not(await driver.find(amphoraId), null, 'it is found')
      await driver.delete(amphoraId)
      t.same(traces(), [])
      t.same(await driver.list(), [])
    })
  }
  await t.test('begins anew', async t => {
    await killDuring(t, orders, inOwn('monitor'))
    t.match(await driver.find(amphoraId), { state: 'stopped' })
    const created = await driver.create(spec)
    t.match(created, { state: 'running', image: { tag: 'amphora', id: builtImage().id }, zone: 'local' })
    t.match(await hello(), { protocolVersion: 1, appliedGeneration: 0 })
    t.equal(traces().filter(one => one.startsWith('process')).length, 2, 'the holder and QEMU')
  })
})

t.test('a running machine', async t => {
  t.test('has lost its seed, and QEMU too', async t => {
    t.equal(await inside('ls /dev/vd*'), '/dev/vda\n/dev/vda1\n')
    await withQmp(join(own, 'monitor'), async qmp => {
      const sets = await qmp.execute('query-fdsets', { answer: z.array(z.object({ 'fdset-id': z.number() })) })
      t.same(sets.map(set => set['fdset-id']).sort(), [1, 2])
      await t.rejects(qmp.execute('human', { answer: z.unknown() }), { name: QmpRefused.name })
    })
  })
  t.test('cannot write more than its disk may have', async t => {
    const [, soft, hard] =
      /^Max file size +(\S+) +(\S+)/m.exec(readFileSync(`/proc/${firstProcessOf(own)}/limits`, 'utf8')) ?? []
    t.equal(soft, hard)
    t.equal(
      Number(hard),
      1024 * Math.ceil((JSON.parse(readFileSync(join(own, 'hardware'), 'utf8')).diskBytes ?? 0) / 1024),
    )
    t.ok(Number(hard) < 2 * 1024 ** 3)
  })
  t.test('is kept when it is created again, by another controller too', async t => {
    const qemu = firstProcessOf(own)
    const parts = { instance, directory, fabric, networkMtu: async () => 1500, portFilters: async () => null }
    const other = openVirtualDriver({ ...parts, accounts: { first: 1_900_000_000, count: 64 }, log: quiet })
    await other.create(spec)
    t.equal(firstProcessOf(own), qemu)
  })
  t.test('has a console', async t => {
    t.match(await driver.console(amphoraId), /ready/)
    t.match(await driver.console(randomUUID()), null)
  })

  const port = createPort(randomUUID(), '198.51.100.10')
  const orders = { instance, directory, amphoraId, port }
  const macs = () => inside('cat /sys/class/net/*/address')
  const tapIn = (place: string) => ({ tapIn: [place], tap: tapOf(port.id) })

  t.test('gets an interface, however often plugging is killed', async t => {
    for (const killAt of [{ file: join(own, 'ports', port.id) }, tapIn(namespace), tapIn(fabric.namespace)]) {
      await killDuring(t, { ...orders, change: 'plug' }, killAt)
      // A controller plugs again what is not plugged.
      const isPlugged = (await driver.pluggedPorts(amphoraId)).length > 0
      t.ok(!isPlugged || (await macs()).includes(port.macAddress), 'what counts as plugged is in the machine')
      if (isPlugged) break
    }
    await driver.plug(amphoraId, port, 'tests')
    await driver.plug(amphoraId, port, 'tests')
    t.match(await driver.pluggedPorts(amphoraId), [{ id: port.id, addresses: ['198.51.100.10'] }])
    const seen = await eventually(
      'it is there',
      async () => ((await macs()).includes(port.macAddress) ? macs() : null),
      PATIENCE,
    )
    t.equal(seen.split(port.macAddress).length, 2, 'once')
    t.match(ip('-n', fabric.namespace, 'link', 'show', tapOf(port.id)), /LOWER_UP.* master br/)
  })
  t.test('gets it back when the fabric loses it', async t => {
    ip('-n', fabric.namespace, 'link', 'delete', tapOf(port.id))
    t.same(await driver.brokenInterfaces(), [amphoraId])
    await driver.plug(amphoraId, port, 'tests')
    t.same(await driver.brokenInterfaces(), [])
    await eventually('it is there', async () => (await macs()).includes(port.macAddress) || null, PATIENCE)
  })
  t.test('loses it, however often unplugging is killed', async t => {
    await killDuring(t, { ...orders, change: 'unplug' }, { noTapIn: fabric.namespace, tap: tapOf(port.id) })
    await driver.unplug(amphoraId, port.id)
    await driver.unplug(amphoraId, port.id)
    t.same(await driver.pluggedPorts(amphoraId), [])
    t.same(tapsIn(fabric.namespace), [tapOf(spec.managementPort.id)])
    await eventually('it is gone', async () => (await macs()).includes(port.macAddress) === false || null, PATIENCE)
  })
  t.test('takes eight interfaces, and refuses more with the number', async t => {
    const ports = Array.from({ length: 9 }, (_, index) => createPort(randomUUID(), `198.51.100.${20 + index}`))
    for (const one of ports.slice(0, 8)) await driver.plug(amphoraId, one, 'tests')
    await t.rejects(driver.plug(amphoraId, ports[8]!, 'tests'), { message: /at most 8 network interfaces/ })
    for (const one of ports) await driver.unplug(amphoraId, one.id)
    t.same(await driver.pluggedPorts(amphoraId), [])
  })
  t.test('shows what it carries, whatever its network does', async t => {
    t.same(await driver.inspect(amphoraId), { serves: false, forwards: false, finding: 'HAProxy is not running' })
    const configuration = 'frontend web\\n mode tcp\\n timeout client 1s\\n bind :8080\\n'
    await inside(`printf '${configuration}' >/tmp/web && haproxy -D -f /tmp/web -p /tmp/pid`)
    await inside(`nft add table inet ${DATAGRAM_TABLE}`)
    const link = (state: 'up' | 'down') =>
      ip('-n', fabric.namespace, 'link', 'set', tapOf(spec.managementPort.id), state)
    link('down')
    const inspected = await driver.inspect(amphoraId)
    link('up')
    const finding = 'HAProxy runs and listens on 8080; the kernel forwards UDP and SCTP'
    t.same(inspected, { serves: true, forwards: true, finding })
    await inside(`kill $(cat /tmp/pid); nft delete table inet ${DATAGRAM_TABLE}`)
    t.match(await driver.inspect(amphoraId), { serves: false, finding: 'HAProxy is not running' })
  })
  t.test('does not serve if QEMU stops it', async t => {
    const pause = (command: string) =>
      withQmp(join(own, 'monitor'), qmp => qmp.execute(command, { answer: z.unknown() }))
    await pause('stop')
    t.match(await driver.inspect(amphoraId), { serves: false, finding: /does not run: paused/ })
    await pause('cont')
    const qemu = firstProcessOf(own)
    process.kill(qemu, 'SIGSTOP')
    t.match(await driver.inspect(amphoraId), { serves: false, finding: 'QEMU is stopped' })
    process.kill(qemu, 'SIGCONT')
  })
  t.test(
    'is found stopped when QEMU has ended, as after a reboot of the host, and starts again from the image',
    async t => {
      await inside('touch /etc/mark && sync')
      process.kill(firstProcessOf(own), 'SIGKILL')
      await eventually('it is stopped', async () => (await driver.find(amphoraId))?.state === 'stopped')
      t.equal(await driver.inspect(amphoraId), null)
      agents.close(amphoraId)
      t.match(await driver.create(spec), { state: 'running' })
      t.match(await hello(), { protocolVersion: 1 })
      t.equal(await inside('ls /etc/mark 2>/dev/null'), '')
    },
  )
  t.test('is gone after deletion, however often that is killed', async t => {
    const deletion: Change = { ...orders, change: 'delete' }
    for (const killAt of [{ noTapIn: fabric.namespace }, { noProcessOf: amphoraId }]) {
      await killDuring(t, deletion, killAt)
      t.not(await driver.find(amphoraId), null, 'it is still found')
    }
    // Only its directory is left now, which is gone in a moment.
    const [code, signal] = await endOfKilled(deletion, { noFile: `/run/netns/${namespace}` })
    t.ok(code === 0 || signal === 'SIGKILL', `it ends, or is killed: ${code}, ${signal}`)
    t.notOk(existsSync(`/run/netns/${namespace}`))
    t.equal((await driver.find(amphoraId)) !== null, existsSync(own), 'it is found as long as it has its directory')
    await driver.delete(amphoraId)
    t.equal(await driver.find(amphoraId), null)
    t.same(traces(), [])
  })
})

t.test('a console keeps the last of what it gets', async t => {
  const file = join(t.testdir({ console: 'from the start\n' }), 'console')
  const script = join(import.meta.dirname, '../../controller/compute/qemu/machine/console.pl')
  const words = ['-c', 'seq 1 30000 | perl "$0" 65536 1<>"$1"; seq 30001 30010 | perl "$0" 65536 1<>"$1"', script, file]
  execFileSync('bash', words)
  const text = await eventually('it has all', () => {
    const found = readFileSync(file, 'utf8')
    return found.endsWith('30010\n') ? found : null
  })
  t.ok(text.length <= 65_536)
  t.match(text, /^(\d*\n)/)
  t.ok(text.includes('\n29000\n29001\n'))
})

t.test('a machine for which there is no memory', async t => {
  const parts = { instance, directory, fabric, networkMtu: async () => 1500, portFilters: async () => null }
  const small = openVirtualDriver({ ...parts, accounts: { first: 1_900_000_000, count: 64 }, log: quiet }, 500)
  await t.rejects(small.create(spec), { message: /500 MiB of memory for virtual machines, and 1 would need 512/ })
  await small.delete(amphoraId)
  t.same(traces(), [])
})
